import t from 'tap'
import { looksLikeKey, NOT_SHOWN, openName, openText } from '../src/index.ts'

t.test('of a URL, the parts that name a place and the names of members are shown', async t => {
  for (const [text, shown] of [
    ['http://h:8001', 'http://h:8001'],
    ['http://h:8001/engines/a/?events=5557&ranks=2', 'http://h:8001/engines/a?events=5557&ranks=2'],
    ['http://user:pw@h:1', 'http://***@h:1'],
    ['http://h:1?api_key=abc&key_file=/etc/k', 'http://h:1?api_key&key_file'],
    ['http://h:1/p4ssw0rd/abc-1', 'http://h:1/…'],
    ['http://h:1?sk-abc', `http://h:1?${NOT_SHOWN}`],
    ['http://h:1#abc', 'http://h:1#…'],
    ['http://sk-proj-abcdefgh12345678:1', 'http://…'],
    ['nats://u:p@h:4222', 'nats://***@h:4222'],
    ['tcp://h:5557', 'tcp://h:5557'],
    ['http://', NOT_SHOWN],
  ] as const)
    t.equal(openText(text), shown, text)
})

t.test('other texts are shown unless they may be a secret', async t => {
  for (const text of ['lots', '99999', 'round-robin', '/etc/homing', 'gpu-1:8000'])
    t.equal(openText(text), text)
  for (const text of [
    'sk-abc',
    'Bearer abc',
    'key=abc',
    'token: abc',
    'user:pw@h:1',
    'hf_abcdefgh',
    '0123456789abcdef0123456789abcdef',
    'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0',
    'my password',
  ])
    t.equal(openText(text), NOT_SHOWN, text)
  t.equal(openName('api_key'), 'api_key')
  for (const name of ['sk-abc', 'abc123', 'a b', 'x'.repeat(40)]) t.equal(openName(name), NOT_SHOWN, name)
})

t.test('names of machines and models are no keys', async t => {
  for (const text of [
    'sk-bratislava-gpu-node-12',
    'hf-internal-testing/tiny-random',
    'vllm-7d9f8b6c5d-x2x4z.default.svc',
    'task-runner-1234567890123456',
  ])
    t.notOk(looksLikeKey(text), text)
  for (const text of ['sk-proj-abcdefgh12345678', 'hf_AbCdEfGhIjKlMnOpQr', '/v1/gsk_abcdefgh12345678'])
    t.ok(looksLikeKey(text), text)
})
