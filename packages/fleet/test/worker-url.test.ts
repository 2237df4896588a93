import t from 'tap'
import { brokerEndpointOf, InvalidWorkerError, parseWorkerSpec, WorkerRoll } from '../src/index.ts'

t.test('a URL with every parameter', async t => {
  const text =
    'http://h:8001?events=5557&replay=5600&ranks=2&max_batched_tokens=8192&kv_blocks=1000&taints=a,b,a&model=m&block_size=16&id=7&topic=kv&events_host=node-7&role=prefill&handover=bootstrap&bootstrap_host=node-8&bootstrap_port=8998'
  t.strictSame(parseWorkerSpec(text, 3), {
    id: 'h:8001',
    instanceId: 7,
    origin: 'http://h:8001',
    model: 'm',
    blockSizeTokens: 16,
    ranks: 2,
    eventsHost: 'node-7',
    eventsPort: 5557,
    replayPort: 5600,
    topic: 'kv',
    natsSubject: undefined,
    requestSubject: undefined,
    requestEndpoint: undefined,
    maxBatchedTokens: 8192,
    kvBlocks: 1000,
    role: 'prefill',
    handover: 'bootstrap',
    bootstrapHost: 'node-8',
    bootstrapPort: 8998,
    taints: ['a', 'b'],
    key: undefined,
  })
})

t.test('an engine behind TLS and a key', async t => {
  t.match(parseWorkerSpec('https://gpu-1.example?key_file=/etc/k', 0), {
    id: 'gpu-1.example:443',
    origin: 'https://gpu-1.example:443',
    key: { file: '/etc/k' },
  })
  t.match(parseWorkerSpec('http://h:1?key_env=ENGINE_KEY', 0).key, { env: 'ENGINE_KEY' })
})

t.test('the subject under which it takes requests at a broker', async t => {
  const spec = parseWorkerSpec('http://gpu-1:8000?requests=homing.requests.gpu-1', 0)
  t.match(spec, { id: 'gpu-1:8000', origin: 'http://gpu-1:8000', requestSubject: 'homing.requests.gpu-1' })
  for (const subject of ['a..b', '*', 'a b'])
    t.throws(() => parseWorkerSpec(`http://gpu-1:8000?requests=${subject}`, 0), {
      message: /requests is no subject: use words of letters, digits/,
    })
})

t.test('where it takes the connections of routers for all its requests', async t => {
  const spec = parseWorkerSpec('http://gpu-1:8000?requests=tcp://10.0.0.1:9000', 0)
  t.match(spec, { requestEndpoint: 'tcp://10.0.0.1:9000', requestSubject: undefined })
  for (const [url, message] of [
    ['http://gpu-1:8000?requests=tcp://gpu-1', /requests names no tcp:\/\/HOST:PORT/],
    ['http://gpu-1:8000?requests=tcp://*:9000', /requests names no tcp:\/\/HOST:PORT/],
    ['http://gpu-1:8000?requests=tcp://gpu-1:0', /requests names no tcp:\/\/HOST:PORT/],
    [
      'https://gpu-1:8000?requests=tcp://gpu-1:9000',
      /requests=tcp:\/\/ is not encrypted, and its URL is https/,
    ],
  ] as const)
    t.throws(() => parseWorkerSpec(url, 0), { message })
})

t.test('its events may be at another host than its requests', async t => {
  const hostOf = (text: string) => parseWorkerSpec(`https://proxy:8443?events_host=${text}`, 0).eventsHost
  t.equal(hostOf('10.0.0.7'), '10.0.0.7')
  t.equal(hostOf('fd00::7'), '[fd00::7]')
  t.equal(hostOf('[fd00::7]'), '[fd00::7]')
})

t.test('the subject of its events at a broker, and where a worker publishes that names none', async t => {
  const broker = { servers: ['a:4222', 'b:4222'], isPlane: false }
  const endpoint = (text: string, isPlane: boolean) =>
    brokerEndpointOf(parseWorkerSpec(text, 0), 1, { ...broker, isPlane })
  t.equal(endpoint('http://h:1?nats=my.gpu', false), 'nats://a:4222,b:4222/my.gpu.1')
  t.equal(endpoint('http://h:1', false), undefined)
  t.equal(endpoint('http://10.0.0.1:8001', true), 'nats://a:4222,b:4222/homing.kv.10_0_0_1_8001.1')
  t.equal(endpoint('http://[::1]:8001', true), 'nats://a:4222,b:4222/homing.kv.___1__8001.1')
  t.equal(endpoint('http://h:1?events=5557', true), undefined, 'ports that are given win')
  const named = (text: string, at: string, isPlane = true) =>
    brokerEndpointOf(parseWorkerSpec(text, 0), 1, { ...broker, isPlane }, at)
  t.equal(named('http://h:1', 'nats://elsewhere:4222/my.gpu.1'), 'nats://a:4222,b:4222/my.gpu.1')
  t.equal(named('http://h:1', 'tcp://h:5558'), 'nats://a:4222,b:4222/homing.kv.h_1.1', 'of a sidecar')
  t.equal(named('http://h:1', 'nats://b:4222/no subject'), 'nats://a:4222,b:4222/homing.kv.h_1.1')
  t.equal(named('http://h:1?nats=x', 'nats://b:4222/my.gpu.1'), 'nats://a:4222,b:4222/x.1', 'given wins')
  t.equal(named('http://h:1', 'nats://b:4222/my.gpu.1', false), undefined)
  t.equal(brokerEndpointOf(parseWorkerSpec('http://h:1?nats=x', 0), 0, undefined), undefined)
})

t.test('what is left out is unknown, and the number is the position', async t => {
  t.match(parseWorkerSpec('http://10.0.0.2:8000/', 4), {
    id: '10.0.0.2:8000',
    instanceId: 4,
    eventsPort: undefined,
    ranks: undefined,
    taints: [],
  })
})

t.test('scheme and port may be left out', async t => {
  t.match(parseWorkerSpec('h:8001?ranks=2', 0), { id: 'h:8001', origin: 'http://h:8001', ranks: 2 })
  t.match(parseWorkerSpec('http://h', 0), { id: 'h:80', origin: 'http://h:80' })
  t.match(parseWorkerSpec('http://[::1]:8001', 0), { id: '[::1]:8001', origin: 'http://[::1]:8001' })
})

t.test('the routes of an engine may be under a path', async t => {
  t.match(parseWorkerSpec('http://h:8000/engines/a?events=5557', 0), {
    id: 'h:8000/engines/a',
    origin: 'http://h:8000/engines/a',
    eventsPort: 5557,
  })
  t.match(parseWorkerSpec('https://h/a/', 0), { id: 'h:443/a', origin: 'https://h:443/a' })
  t.match(parseWorkerSpec('h:8000/a', 0), { id: 'h:8000/a', origin: 'http://h:8000/a' })
})

t.test('two engines behind one host and port are two workers if their paths differ', async t => {
  const roll = new WorkerRoll()
  const enter = (text: string, position: number) => roll.enter(text, parseWorkerSpec(text, position))
  enter('http://localhost:8000/a', 0)
  enter('http://localhost:8000/b', 1)
  t.throws(() => enter('http://127.0.0.1:8000/a/', 2), { message: /is the worker .* again/ })
})

t.test('the number of a worker that joins later follows from host, port and path', async t => {
  const numberOf = (text: string) => parseWorkerSpec(text, undefined).instanceId
  const number = numberOf('http://127.0.0.1:8000/a')
  t.ok(Number.isSafeInteger(number) && number > 2 ** 32, `${number}`)
  for (const same of ['http://localhost:8000/a?ranks=2', 'https://127.0.0.1:8000/a/', 'LOCALHOST:8000/a'])
    t.equal(numberOf(same), number, same)
  for (const other of ['http://127.0.0.1:8001/a', 'http://127.0.0.1:8000/b', 'http://127.0.0.2:8000/a'])
    t.not(numberOf(other), number, other)
  t.not(numberOf('http://h'), numberOf('https://h'), 'another port')
  t.equal(numberOf('http://h?id=9007199254740991'), 2 ** 53 - 1)
  t.throws(() => numberOf('http://h?id=9007199254740992'), { message: /is not a whole number from 0 to/ })
})

t.test('what cannot be used says why', async t => {
  const cases: readonly (readonly [text: string, reason: RegExp])[] = [
    ['', /it is empty/],
    ['http://', /not a URL/],
    ['http://h:99999', /not a URL/],
    ['ftp://h:8001', /workers are reached over http or https, not ftp/],
    ['http://h:1?key_env=A&key_file=b', /not both/],
    ['http://h:1?token=abc', /a key does not belong into a URL/],
    ['nonsense', /not a URL; write http:\/\/HOST:PORT/],
    ['nonsense?ranks=2', /not a URL/],
    ['h/engines/a', /not a URL/],
    ['h:8001x', /not a URL/],
    ['http://h:8001/v1', /leave \/v1 out of its path/],
    ['http://h:8001/engines/a/v1/', /leave \/v1 out of its path/],
    ['http://h:8001/a//b', /its path cannot be used/],
    ['http://h:8001/a%20b', /its path cannot be used; use segments of letters/],
    ['http://u:p@h:8001', /user name/],
    ['http://h:8001#x', /leave out # and what follows it/],
    ['http://h:8001?nats=a.*', /nats is no subject/],
    ['http://h:8001?nats=a&events=5557', /give nats, or events and replay, not both/],
    ['http://h:8001?event=1', /unknown parameter event; known parameters: events, replay/],
    ['http://h:8001?events=', /events has no value/],
    ['http://h:8001?events=1&events=2', /given twice/],
    ['http://h:8001?events=70000', /events=70000 is not a whole number from 1 to 65535/],
    ['http://h:8001?ranks=0', /ranks=0 is not a whole number from 1 to 1024/],
    ['http://h:8001?ranks=1.5', /ranks=1.5/],
    ['http://h:8001?events=65535&ranks=2', /leaves no ports for 2 ranks/],
    ['http://h:8001?events=5557&replay=5558&ranks=2', /overlap with 2 ranks, .* such as 6557$/],
    ['http://h:8001?events=65000&replay=65001&ranks=2', /overlap with 2 ranks, .* such as 64000$/],
    ['http://h:8001?events=5557&replay=5557', /overlap with 1 ranks: .* such as 6557$/],
    ['http://h:8001?block_size=x', /block_size is not a whole number/],
    ...['a:5557', 'tcp://a', 'a/b', 'u@a', 'a b'].map(
      host => [`http://h:8001?events_host=${host}`, /is no host; give a name or an address/] as const,
    ),
    ['http://h:8001?id=-1', /id=-1/],
  ]
  for (const [text, reason] of cases) {
    t.throws(
      () => parseWorkerSpec(text, 0),
      { code: 'HOMING_DIRECTORY_INVALID_WORKER', message: reason },
      text,
    )
  }
  t.throws(() => parseWorkerSpec('', 0), InvalidWorkerError)
})
