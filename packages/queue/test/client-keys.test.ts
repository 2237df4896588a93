/** The file of client keys: what it says, and what each fault says, without any of its values. */

import t from 'tap'
import { BadClientKeysError, parseClientKeys } from '../src/index.ts'

const A = 'a'.repeat(64)
const B = `0${'B'.repeat(63)}`

function faultsOf(text: string): readonly string[] {
  try {
    parseClientKeys(text, 'keys.yaml')
    return []
  } catch (thrown) {
    return (thrown as BadClientKeysError).faults
  }
}

t.test('YAML and JSON say the same', async t => {
  const expected = [
    {
      name: 'team-a',
      digests: [A],
      models: ['m', 'n'],
      concurrentRequests: 4,
      requestsPerMinute: 60,
      tokensPerMinute: 1000,
    },
    {
      name: 'b@example.org',
      digests: [A.replace('a', 'c'), B.toLowerCase()],
      models: undefined,
      concurrentRequests: undefined,
      requestsPerMinute: undefined,
      tokensPerMinute: undefined,
    },
  ]
  const yaml = `
# clients
- name: team-a
  sha256: '${A}'
  models: [m, n]
  concurrent_requests: 4
  requests_per_minute: 60
  tokens_per_minute: 1000
- { name: b@example.org, sha256: ['${A.replace('a', 'c')}', '${B}'] }
`
  t.strictSame(parseClientKeys(yaml, 'keys.yaml'), expected)
  const json = [
    {
      name: 'team-a',
      sha256: A,
      models: ['m', 'n'],
      concurrent_requests: 4,
      requests_per_minute: 60,
      tokens_per_minute: 1000,
    },
    { name: 'b@example.org', sha256: [A.replace('a', 'c'), B] },
  ]
  t.strictSame(parseClientKeys(JSON.stringify(json), 'keys.json'), expected)
  t.strictSame(parseClientKeys(JSON.stringify({ keys: json }), 'keys.json'), expected)
})

t.test('each fault names entry and member, and repeats nothing', async t => {
  const secret = 'hk-secret-in-the-wrong-place'
  const cases: readonly [string, RegExp][] = [
    ['', /must be a list/],
    ['[]', /lists no key/],
    ['keys: []', /lists no key/],
    [`key: ${secret}`, /may have a list, or keys alone/],
    [secret, /must be a list/],
    [`- ${secret}`, /^entry 1: it must have name and sha256$/],
    [`- { sha256: '${A}' }`, /^entry 1: name must have/],
    [`- { name: '${secret} a', sha256: '${A}' }`, /^entry 1: name must have/],
    ['- { name: a }', /^entry 1 \(a\): sha256 must be/],
    [`- { name: a, sha256: ${secret} }`, /^entry 1 \(a\): sha256 must be/],
    [`- { name: a, sha256: [] }`, /^entry 1 \(a\): sha256 must be/],
    [`- { name: a, sha256: ${'1'.repeat(64)} }`, /in quotes/],
    [`- { name: a, sha256: '${A}', models: [] }`, /^entry 1 \(a\): models must be/],
    [`- { name: a, sha256: '${A}', models: m }`, /^entry 1 \(a\): models must be/],
    [`- { name: a, sha256: '${A}', concurrent_requests: 0 }`, /\(a\): concurrent_requests must be/],
    [`- { name: a, sha256: '${A}', requests_per_minute: 1.5 }`, /\(a\): requests_per_minute must be/],
    [`- { name: a, sha256: '${A}', tokens_per_minute: ${secret} }`, /\(a\): tokens_per_minute must be/],
    [`- { name: a, sha256: '${A}', rate: 1 }`, /\(a\): .*rate.* is no member; there are name, sha256/],
    [`- { name: a, sha256: '${A}', ${secret}: 1 }`, /is no member/],
    [`- { name: a, sha256: '${A}' }\n- { name: a, sha256: '${B}' }`, /^entry 2 \(a\): name is that/],
    [`- { name: a, sha256: '${A}' }\n- { name: b, sha256: '${A}' }`, /^entry 2 \(b\): sha256 is that/],
    [`- name: a\n  sha256: "${secret}\n`, /^it is no YAML at line \d+, column \d+/],
    [`- &a { name: a, sha256: '${A}' }\n- *a`, /aliases/],
  ]
  for (const [text, fault] of cases) {
    const faults = faultsOf(text)
    t.equal(faults.length, 1, `${text}: ${faults.join('; ')}`)
    t.match(faults[0], fault)
    t.notMatch(faults[0], /secret/)
  }
  const many = JSON.stringify(Array.from({ length: 4097 }, (_, at) => ({ name: `n${at}` })))
  t.match(faultsOf(many), [/lists 4097 keys; the most is 4096/])
  t.equal(faultsOf('- {}\n'.repeat(100)).length <= 21, true, 'not all of very many')
  t.match(new BadClientKeysError('keys.yaml', ['one', 'two']).message, /keys\.yaml:\n {2}one\n {2}two/)
})
