/** The settings of a program: values, and only some of them. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  completeSettings,
  indexerCommand,
  parseSettings,
  readTenantWeights,
  readTrustedHints,
  routerCommand,
  type SettingDescriptor,
  SettingsError,
  simulateCommand,
} from '../src/index.ts'

const machine = { cores: 8 }

function faultsOf(given: Readonly<Record<string, unknown>>): readonly string[] {
  try {
    completeSettings(routerCommand, given as never, { machine })
  } catch (error) {
    assert.ok(error instanceof SettingsError)
    return error.faults
  }
  return []
}

t.test('with nothing given every setting has the default of the command line', async t => {
  for (const command of [routerCommand, indexerCommand]) {
    const settings = completeSettings(command as typeof routerCommand, {}, { machine })
    t.strictSame(settings, parseSettings(command as typeof routerCommand, [], {}, { machine }).settings)
    t.ok(Object.isFrozen(settings))
  }
})

t.test('what is given counts, undefined is as good as nothing, and lists are kept as copies', async t => {
  const workers = ['http://10.0.0.1:8001']
  const given = { port: 0, workers, shutdownTimeoutMs: 0, seed: undefined, host: '[::1]', kvEvents: false }
  const settings = completeSettings(routerCommand, given, { machine })
  workers.push('http://10.0.0.2:8001')
  t.match(settings, { port: 0, shutdownTimeoutMs: 0, seed: undefined, host: '::1', kvEvents: false })
  t.strictSame(settings.workers, ['http://10.0.0.1:8001'])
  t.ok(Object.isFrozen(settings.workers))
  t.equal(settings.retries, 2)
})

t.test('what is no object has no settings', async t => {
  for (const [given, shown] of [
    [null, 'null'],
    [undefined, 'undefined'],
    [7, '7'],
    ['port', '"port"'],
    [[], 'a list'],
    [() => {}, 'a function'],
  ] as const)
    t.strictSame(faultsOf(given as never), [`${shown} is no object with settings`])
})

t.test('every fault is told, with the key, the value and what would be right', async t => {
  t.strictSame(
    faultsOf({
      prot: 1,
      'router-mode': 'kv',
      port: 70_000,
      retries: 1.5,
      temperature: Number.NaN,
      shutdownTimeoutMs: '5s',
      indexBytes: '1GiB',
      kvEvents: 'no',
      routerMode: 'fastest',
      host: 7,
      workers: 'http://10.0.0.1:8001',
      tokenizers: ['', 3],
      relayRoutes: ['nowhere'],
    }),
    [
      'prot: there is no such setting; did you mean port?',
      'router-mode: there is no such setting; did you mean routerMode?',
      'host: 7 is not a text',
      'port: 70000 is out of range 0 … 65535',
      'shutdownTimeoutMs: "5s" is not a number of milliseconds',
      'workers: "http://10.0.0.1:8001" is not a list of texts',
      'routerMode: "fastest" is not one of kv, random, round-robin, least-loaded, power-of-two, direct',
      'temperature: NaN is not a number',
      'kvEvents: "no" is neither true nor false',
      'indexBytes: "1GiB" is not a number of bytes',
      'tokenizers: "" is empty',
      'tokenizers: 3 is not a text',
      'retries: 1.5 is not a whole number',
      ...faultsOf({ relayRoutes: ['nowhere'] }),
    ],
  )
  t.match(faultsOf({ relayRoutes: ['nowhere'] }), [/^relayRoutes: "nowhere" /])
  t.match(faultsOf({ tenantWeights: ['chat', 'a=b', 'a=0', '=1'] }), [
    /TENANT=WEIGHT/,
    /no number from 0.001/,
    /no number from 0.001/,
    /TENANT=WEIGHT/,
  ])
  t.strictSame(
    [...readTenantWeights(['a=b=2', 'c=0.5'])],
    [
      ['a=b', 2],
      ['c', 0.5],
    ],
  )
  t.match(faultsOf({ trustedHints: ['chat', 'none'] }), [
    /--router-trusted-hints none leaves nothing to say for further values/,
  ])
  for (const [given, isGuarded, expected] of [
    [[], false, 'all'],
    [[], true, []],
    [['all'], true, 'all'],
    [['none'], false, []],
    [['chat', 'batch'], false, ['chat', 'batch']],
  ] as const)
    t.strictSame(readTrustedHints(given, isGuarded), expected)
  t.throws(() => completeSettings(routerCommand, { port: -1 }), {
    code: 'HOMING_CONFIG_BAD_SETTINGS',
    message: 'cannot start router: port: -1 is out of range 0 … 65535',
  })
})

t.test('rules over several settings hold, and a default that is given is no wish', async t => {
  t.match(faultsOf({ guessTtlUntilEventsMs: 5000, kvEvents: false }), [
    /--router-predicted-ttl-secs covers the time/,
  ])
  const trackOutputBlocks = true
  t.match(faultsOf({ trackOutputBlocks, trackActiveBlocks: false }), [/needs --router-track-active-blocks/])
  for (const threshold of [
    { queueThreshold: '2' },
    { queueThreshold: 'auto', routerPolicy: 'linear' },
    { tenantWeights: ['chat=2'], routerPolicy: 'linear' },
    { activePrefillTokensThreshold: 0 },
    { activePrefillTokensThresholdFraction: 1 },
  ] as const)
    t.match(faultsOf({ ...threshold, trackPrefillTokens: false }), [/goes by prefill tokens, which/])
  t.strictSame(faultsOf({ queueThreshold: 'auto', trackPrefillTokens: false }), [], 'auto has its own')
  t.strictSame(faultsOf({ trackPrefillTokens: false }), [], 'and so does the default')
  t.strictSame(faultsOf({ trackPrefillTokens: false, routerPolicy: 'linear' }), [], 'which is none else')
  const weighed = { tenantWeights: ['chat=2'], queueThreshold: 'none' }
  t.match(faultsOf(weighed), [/--router-tenant-weight has no effect with --router-queue-threshold none/])
  t.strictSame(faultsOf({ ...weighed, policyClassFile: 'classes.yaml' }), [], 'classes may have thresholds')
  t.strictSame(faultsOf({ ...weighed, queueThreshold: 'auto' }), [])
  t.throws(
    () => completeSettings(simulateCommand, weighed, { machine }),
    /--router-tenant-weight has no effect with --router-queue-threshold none/,
  )
  t.match(faultsOf({ affinitiesMax: 5 }), [/no effect without --router-session-affinity-ttl-secs/])
  const hard = { affinityTtlMs: 1000, affinityMode: 'hard' } as const
  t.strictSame(faultsOf(hard), [])
  t.strictSame(faultsOf({ ...hard, queueThreshold: 'auto' }), [])
  t.match(faultsOf({ activeDecodeBlocksThreshold: 0.5, trackActiveBlocks: false }), [/goes by active blocks/])
  t.match(faultsOf({ frontend: false }), [/--no-frontend needs the workers that programs send/])
  t.match(faultsOf({ frontend: false, workers: ['http://10.0.0.1:1'], relayRoutes: ['/v1/files'] }), [
    /--relay-route has no effect with --no-frontend/,
  ])
  t.match(faultsOf({ workers: ['http://10.0.0.1:1'], demoEngines: 2 }), [/have no effect when workers/])
  t.strictSame(faultsOf({ workers: ['http://10.0.0.1:1'], demoEngines: 4 }), [])
  t.match(faultsOf({ workers: ['http://10.0.0.1:1'], demoDisagg: true }), [/have no effect when workers/])
  t.strictSame(faultsOf({ disaggRule: 'auto' }), [])
  t.match(faultsOf({ disaggRule: 'auto', routerPolicy: 'linear' }), [
    /needs --router-mode kv and --router-policy/,
  ])
  t.match(faultsOf({ disaggRule: 'auto', conditionalDisagg: true }), [/goes by its own thresholds/])
  t.match(faultsOf({ discovery: 'kubernetes' }), [/needs a Service: name it with --kubernetes-service/])
  t.strictSame(faultsOf({ discovery: 'kubernetes', kubernetesSelector: 'app=vllm' }), [])
  t.match(faultsOf({ discovery: 'dns' }), [/needs a name: give --dns-name/])
  t.strictSame(faultsOf({ discovery: 'dns', dnsNames: ['http://engines.test:8000'] }), [])
  t.match(faultsOf({ discovery: 'kubernetes', kubernetesServices: ['a'], workerNamespace: 'b' }), [
    /--discovery-backend kubernetes takes no workers that register themselves/,
  ])
  t.match(faultsOf({ dnsRefreshMs: 2000 }), [/--dns-refresh has no effect without --discovery-backend dns/])
  t.match(faultsOf({ discovery: 'dns', dnsNames: ['http://a.test'], kubernetesPort: 'http' }), [
    /--kubernetes-port has no effect without --discovery-backend kubernetes/,
  ])
  t.match(faultsOf({ discovery: 'dns', dnsNames: ['http://a.test'], demoEngines: 2 }), [
    /have no effect when workers/,
  ])
  t.match(faultsOf({ demoDisagg: true, demoEngines: 1 }), [/needs an engine of either kind.* is 1: use 2/])
})

t.test('who knows more of a list adds faults, and settings that do nothing here are refused', async t => {
  const complete = (given: object) => () =>
    completeSettings(routerCommand, given, {
      machine,
      listChecks: { workers: items => items.map(item => `"${item}": seen`) },
      without: ['detach'],
    })
  t.throws(complete({ workers: ['http://a:1', 'nowhere'], detach: true }), {
    message:
      'cannot start router:\n  workers: "nowhere" is not a URL such as http://10.0.0.1:8001' +
      '\n  workers: "http://a:1": seen\n  workers: "undefined": seen\n  detach: it has no effect here; leave it out',
  })
  t.doesNotThrow(complete({ detach: false }), 'as in settings of the command line that are passed on')
})

t.test('settings of the command line are complete: nothing of them changes', async t => {
  const value = (setting: SettingDescriptor): fc.Arbitrary<string> => {
    switch (setting.kind) {
      case 'integer':
        return fc.integer({ min: setting.min, max: Math.min(setting.max, setting.min + 1000) }).map(String)
      case 'choice':
        return fc.constantFrom(...setting.choices)
      case 'flag':
        return fc.constantFrom('true', 'false')
      default:
        return fc.constant('')
    }
  }
  const kinds = new Set(['integer', 'choice', 'flag'])
  // Of several ports each must differ, thresholds need what they go by, some threads no broker, one rule no
  // other, no API some worker, some discovery a name, what an Envoy is told some port; other tests have
  // these.
  const others = [
    ...['demo', 'frontend', 'worker-slots', 'gateway-threads', 'router-event-threads'],
    ...['router-track', 'active-prefill', 'router-session', 'disagg-rule', 'discovery-backend', 'picker'],
    ...['admin-port', 'metrics-port'],
  ]
  const choices = routerCommand.settings.filter(
    ({ kind, name }) => kinds.has(kind) && !others.some(other => name.startsWith(other)),
  )
  const argv = fc
    .subarray([...choices] as SettingDescriptor[])
    .chain(some => fc.tuple(...some.map(setting => value(setting).map(text => `--${setting.name}=${text}`))))
  const unchanged = fc.property(argv, given => {
    const { settings } = parseSettings(routerCommand, given, {}, { machine })
    assert.deepEqual(completeSettings(routerCommand, settings, { machine }), settings)
  })
  t.doesNotThrow(() => fc.assert(unchanged))
})
