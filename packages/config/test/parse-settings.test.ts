import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { environmentName } from '../src/descriptor.ts'
import {
  asksForHelp,
  type Command,
  completeSettings,
  indexerCommand,
  parseSettings,
  routerCommand,
  type SettingDescriptor,
  SettingsError,
  sidecarCommand,
} from '../src/index.ts'

const machine = { cores: 8 }

function faultsOf(argv: readonly string[], env: Record<string, string> = {}, configFile?: string) {
  try {
    parseSettings(routerCommand, argv, env, configFile === undefined ? { machine } : { machine, configFile })
  } catch (error) {
    assert.ok(error instanceof SettingsError)
    return error.faults
  }
  return []
}

t.test('with nothing given every setting has its default', async t => {
  const { settings, warnings, sources } = parseSettings(routerCommand, [], {}, { machine })
  t.equal(settings.port, 8000)
  t.equal(settings.routerMode, 'kv')
  t.equal(settings.eventThreads, 4)
  t.equal(settings.blockSizeTokens, undefined)
  t.strictSame(settings.workers, [])
  t.equal(settings.shutdownTimeoutMs, 30_000)
  t.strictSame(warnings, [])
  t.strictSame(sources.port, { kind: 'default', name: 'port' })
  t.ok(Object.isFrozen(settings))
  t.ok(Object.isFrozen(settings.workers))
})

t.test('one core still has one event thread', async t => {
  t.equal(parseSettings(routerCommand, [], {}, { machine: { cores: 1 } }).settings.eventThreads, 1)
})

t.test('the command line wins over the environment, and both over the file', async t => {
  const dir = t.testdir({ 'homing.yaml': 'port: 1\nretries: 1\nrouter-mode: random\n' })
  const { settings, sources } = parseSettings(
    routerCommand,
    ['--config', `${dir}/homing.yaml`, '--port', '3'],
    { HOMING_PORT: '2', HOMING_RETRIES: '2' },
    { machine },
  )
  t.equal(settings.port, 3)
  t.equal(settings.retries, 2)
  t.equal(settings.routerMode, 'random')
  t.strictSame(sources.port, { kind: 'command line', name: '--port' })
  t.strictSame(sources.retries, { kind: 'environment', name: 'HOMING_RETRIES' })
  t.strictSame(sources.routerMode, { kind: 'file', name: `router-mode in ${dir}/homing.yaml` })
})

t.test('HOMING_CONFIG names the file where --config does not', async t => {
  const dir = t.testdir({ 'a.yaml': 'port: 1', 'b.yaml': 'port: 2' })
  const env = { HOMING_CONFIG: `${dir}/a.yaml` }
  t.equal(parseSettings(routerCommand, [], env).settings.port, 1)
  t.equal(parseSettings(routerCommand, ['--config', `${dir}/b.yaml`], env).settings.port, 2)
})

t.test('all faults are reported together', async t => {
  t.strictSame(faultsOf(['--prot', '1', '--port', '70000', '--worker', 'nowhere', '--retries', 'two', 'x']), [
    'unknown option --prot; did you mean --port?',
    'unexpected argument "x": options begin with --',
    '--port: "70000" is out of range 0 … 65535',
    '--worker: "nowhere" is not a URL such as http://10.0.0.1:8001',
    '--retries: "two" is not a number',
  ])
})

t.test('the error has a stable code and names the command', async t => {
  t.throws(() => parseSettings(routerCommand, ['--port', '-1'], {}), {
    code: 'HOMING_CONFIG_BAD_SETTINGS',
    message: 'cannot start router: --port: "-1" is out of range 0 … 65535',
    details: { command: 'router', faultCount: 1 },
  })
})

t.test('several faults are a list, one line each', async t => {
  t.throws(() => parseSettings(routerCommand, ['--port', '-1', '--retries', 'two'], {}), {
    message:
      'cannot start router:\n  --port: "-1" is out of range 0 … 65535\n  --retries: "two" is not a number',
  })
})

t.test('an index that cannot be divided among its threads is a fault', async t => {
  t.strictSame(faultsOf(['--index-bytes', '1MiB', '--router-event-threads', '64']), [
    '--index-bytes leaves 16384 bytes for each of --router-event-threads 64: with --worker-slots-max 1024 each needs 212992',
  ])
  t.strictSame(faultsOf(['--index-bytes', '64GiB', '--router-event-threads', '7']), [
    '--index-bytes leaves 9817068105 bytes for each of --router-event-threads 7: each can use 4026531840, so name more threads',
  ])
  t.strictSame(
    parseSettings(routerCommand, ['--index-bytes', '1MiB', '--router-event-threads', '4'], {}).settings
      .indexBytes,
    2 ** 20,
  )
})

t.test('one port for clients and operators both is a fault, unless each is picked', async t => {
  t.strictSame(faultsOf(['--port', '8100', '--admin-port', '8100']), [
    '--admin-port 8100 is the same as --port: choose another, or leave it out',
  ])
  t.strictSame(faultsOf(['--port', '0', '--admin-port', '0', '--metrics-port', '0']), [])
  t.strictSame(faultsOf(['--admin-port', '8100', '--metrics-port', '8100']), [
    '--metrics-port 8100 is the same as --admin-port: choose another, or leave it out',
  ])
  t.strictSame(faultsOf(['--metrics-port', '8000']), [
    '--metrics-port 8000 is the same as --port: choose another, or leave it out',
  ])
})

t.test('predictions until events come are a fault where no events are wanted', async t => {
  t.strictSame(faultsOf(['--router-predicted-ttl-secs', '5', '--no-kv-events']), [
    '--router-predicted-ttl-secs covers the time until KV events come, but --no-kv-events disables them: use --router-ttl-secs',
  ])
})

t.test('an option without its value is a fault', async t => {
  t.strictSame(faultsOf(['--port']), ['--port needs a value'])
  t.strictSame(faultsOf(['--port', '--detach']), ['--port needs a value'])
  t.strictSame(faultsOf(['--host=']), ['--host: "" is empty'])
})

t.test('a worker must be an http or https URL', async t => {
  t.strictSame(faultsOf(['--worker', 'https://a:1']), [])
  t.strictSame(faultsOf(['--worker', 'ftp://a:1']), [
    '--worker: "ftp://a:1" has the scheme ftp; use http or https',
  ])
})

t.test('flags come in pairs, also under their older names', async t => {
  const kvEvents = (argv: string[]) => parseSettings(routerCommand, argv, {}).settings.kvEvents
  t.equal(kvEvents(['--no-kv-events']), false)
  t.equal(kvEvents(['--no-router-kv-events']), false)
  t.equal(kvEvents(['--kv-events=false']), false)
  t.equal(kvEvents(['--no-kv-events', '--use-kv-events']), true)
  t.strictSame(faultsOf(['--no-kv-events=1']), ['--no-kv-events takes no value; leave out "1"'])
  t.strictSame(faultsOf(['--kv-events=perhaps']), ['--kv-events: "perhaps" is neither true nor false'])
  t.strictSame(faultsOf(['--no-port']), [
    'unknown option --no-port: --port takes a value and cannot be turned off',
  ])
})

t.test('an option given twice counts the last time, a list collects', async t => {
  const { settings } = parseSettings(
    routerCommand,
    ['--port', '1', '--worker', 'http://a:1', '--port=2', '--workers=http://b:1'],
    { HOMING_WORKERS: 'http://c:1' },
  )
  t.equal(settings.port, 2)
  t.strictSame(settings.workers, ['http://a:1', 'http://b:1'])
})

t.test('a variable holds a list with commas or spaces between the items', async t => {
  const env = { HOMING_WORKERS: ' http://a:1, http://b:1\thttp://c:1 ', HOMING_TOKENIZERS: 'm=/a b, /c' }
  const { settings } = parseSettings(routerCommand, [], env)
  t.strictSame(settings.workers, ['http://a:1', 'http://b:1', 'http://c:1'])
  t.strictSame(settings.tokenizers, ['m=/a b', '/c'])
})

t.test('variables of chat templates hold commas, and what is none is refused', async t => {
  const env = { HOMING_DEFAULT_CHAT_TEMPLATE_KWARGS: '{"a": 1, "b": "x=y"}\n m={"a": 2}' }
  const { settings } = parseSettings(routerCommand, [], env)
  t.strictSame(settings.defaultChatTemplateKwargs, ['{"a": 1, "b": "x=y"}', 'm={"a": 2}'])
  for (const args of [
    ['--default-chat-template-kwargs', 'm=no'],
    ['--default-chat-template-kwargs', '={"a": 1}'],
    ['--default-chat-template-kwargs', '{"a": '],
    ['--chat-template-content-format', 'm=parts'],
    ['--chat-template-content-format', '=auto'],
    ['--chat-template', 'm='],
  ])
    t.throws(() => parseSettings(routerCommand, args, {}), { message: /use / }, args.join(' '))
})

t.test('an empty variable is as good as none', async t => {
  t.equal(parseSettings(routerCommand, [], { HOMING_PORT: '', DYN_HTTP_PORT: '' }).settings.port, 8000)
})

t.test('durations and sizes are parsed with their units', async t => {
  const of = (argv: string[]) => parseSettings(routerCommand, argv, {}).settings
  t.equal(of(['--replay-timeout', '250ms']).replayTimeoutMs, 250)
  t.equal(of(['--replay-timeout', '1.5']).replayTimeoutMs, 1500)
  t.equal(of(['--replay-timeout', '2m']).replayTimeoutMs, 120_000)
  t.equal(of(['--index-bytes', '1GiB']).indexBytes, 2 ** 30)
  t.equal(of(['--index-bytes', '2097152']).indexBytes, 2 ** 21)
  t.match(faultsOf(['--replay-timeout', 'soon'])[0], /"soon" is not a duration; use '500ms'/)
  t.match(faultsOf(['--index-bytes', '1GB'])[0], /"1GB" is not a size/)
  t.match(faultsOf(['--index-bytes', '1KiB'])[0], /out of range 1MiB … 64GiB/)
})

t.test('each DYN_* variable that is used gives one warning', async t => {
  const { settings, warnings } = parseSettings(routerCommand, [], {
    DYN_ROUTER_MODE: 'random',
    DYN_HTTP_BODY_LIMIT_MB: '3',
    DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS: '7',
    DYN_ROUTER_TEMPERATURE: '0.5',
    HOMING_ROUTER_TEMPERATURE: '0.25',
  })
  t.equal(settings.routerMode, 'random')
  t.equal(settings.bodyBytesMax, 3 * 2 ** 20)
  t.equal(settings.activeRequestExpiryMs, 7000)
  t.equal(settings.temperature, 0.25)
  t.strictSame(warnings, [
    'DYN_HTTP_BODY_LIMIT_MB is read as HOMING_MAX_BODY_BYTES; rename it',
    'DYN_ROUTER_MODE is read as HOMING_ROUTER_MODE; rename it',
    'DYN_ROUTER_TEMPERATURE is overruled by HOMING_ROUTER_TEMPERATURE; remove it',
    'DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS is read as HOMING_ACTIVE_REQUEST_EXPIRY_SECS; rename it',
  ])
})

t.test('a fault in a variable names the variable', async t => {
  t.strictSame(faultsOf([], { HOMING_ROUTER_MODE: 'device-aware-weighted' }), [
    'HOMING_ROUTER_MODE: "device-aware-weighted" is not one of kv, random, round-robin, least-loaded, power-of-two, direct',
  ])
})

t.test('a DYN_* variable never stops the command, whatever it says', async t => {
  const dir = t.testdir({ 'homing.yaml': 'router-mode: random\n' })
  const read = (env: Record<string, string>, argv: readonly string[] = [], configFile?: string) =>
    parseSettings(routerCommand, argv, env, configFile === undefined ? {} : { configFile })
  const mode = read({ DYN_ROUTER_MODE: 'device-aware-weighted' }, [], `${dir}/homing.yaml`)
  t.equal(mode.settings.routerMode, 'random', 'what the file says counts')
  t.strictSame(mode.warnings, [
    'DYN_ROUTER_MODE: "device-aware-weighted" is not one of kv, random, round-robin, least-loaded, power-of-two, direct; ignored',
  ])
  const plane = read({ DYN_REQUEST_PLANE: 'tcp' })
  t.equal(plane.settings.requestPlane, 'tcp')
  t.strictSame(plane.warnings, ['DYN_REQUEST_PLANE is read as HOMING_REQUEST_PLANE; rename it'])

  // What contradicts other settings gives way, and only that.
  const ttl = { DYN_ROUTER_PREDICTED_TTL_SECS: '5', DYN_ROUTER_EVENT_THREADS: '2' }
  const both = read(ttl, ['--no-kv-events'])
  t.match(both.settings, { guessTtlUntilEventsMs: 0, eventThreads: 2, kvEvents: false })
  t.match(both.warnings, [
    /^DYN_ROUTER_PREDICTED_TTL_SECS is ignored: --router-predicted-ttl-secs covers the time/,
    'DYN_ROUTER_EVENT_THREADS is read as HOMING_ROUTER_EVENT_THREADS; rename it',
  ])
  t.match(faultsOf(['--router-predicted-ttl-secs', '5', '--no-kv-events'], ttl), [/covers the time/])

  for (const setting of routerCommand.settings as readonly SettingDescriptor[]) {
    for (const { name } of setting.envAliases ?? []) {
      if (!name.startsWith('DYN_')) continue
      for (const value of ['nonsense', '-1', '0', 'None', 'true']) {
        const { warnings } = read({ [name]: value })
        t.equal(warnings.filter(warning => warning.startsWith(name)).length, 1, `${name}=${value}`)
      }
    }
  }
})

t.test('a log filter counts by its level; what else it says is ignored with one warning', async t => {
  for (const [filter, level, warning] of [
    ['debug', 'debug', 'DYN_LOG is read as HOMING_LOG_LEVEL; rename it'],
    ['WARN', 'warn', 'DYN_LOG is read as HOMING_LOG_LEVEL=warn; rename it'],
    [
      'error,hyper=debug,a::b[span{x="1"}]=trace',
      'error',
      'DYN_LOG is read as HOMING_LOG_LEVEL=error; rename it',
    ],
    ['off', 'silent', 'DYN_LOG is read as HOMING_LOG_LEVEL=silent; rename it'],
    ['foo=debug', 'info', 'DYN_LOG: "foo=debug" contains no value of HOMING_LOG_LEVEL; ignored'],
  ] as const) {
    const { settings, warnings } = parseSettings(routerCommand, [], { DYN_LOG: filter })
    t.equal(settings.logLevel, level, filter)
    t.strictSame(warnings, [warning])
  }
  t.match(faultsOf([], { HOMING_LOG_LEVEL: 'info,foo=debug' }), [
    /^HOMING_LOG_LEVEL: "info,foo=debug" is not/,
  ])
})

t.test('faults of a list as a whole stand among the others', async t => {
  const listChecks = {
    workers: (items: readonly (string | undefined)[]) => [`saw ${items.map(item => item ?? '-').join(' ')}`],
  }
  try {
    const argv = ['--worker', 'x', '--worker', 'http://a:1', '--port', '-1']
    parseSettings(routerCommand, argv, {}, { listChecks })
    t.fail('accepted')
  } catch (error) {
    assert.ok(error instanceof SettingsError)
    t.match(error.faults, [/^--worker: "x" is not/, '--worker: saw - http://a:1', /^--port: "-1"/])
  }
})

t.test('variables that mean nothing here are warned of, others are left alone', async t => {
  const { warnings } = parseSettings(routerCommand, [], {
    DYN_SYSTEM_HOST: '0.0.0.0',
    DYN_HTTP_SVC_CHAT_PATH: '/chat',
    DYN_NAMESPACE: 'x',
    HOMING_ROUTER_MOED: 'kv',
    HOMING_ENGINE_PREFILL_MS_PER_TOKEN: '1',
    PATH: '/bin',
  })
  t.strictSame(warnings, [
    'DYN_NAMESPACE is read as HOMING_NAMESPACE; rename it',
    'DYN_HTTP_SVC_CHAT_PATH, DYN_SYSTEM_HOST: not a setting of this command; ignored',
    'HOMING_ROUTER_MOED is not a setting of this command and is ignored; did you mean HOMING_ROUTER_MODE?',
  ])
})

t.test('DYN_SYSTEM_PORT is the port of metrics and health, and a negative one is none', async t => {
  const given = parseSettings(routerCommand, [], { DYN_SYSTEM_PORT: '8081' })
  t.equal(given.settings.metricsPort, 8081)
  t.strictSame(given.warnings, ['DYN_SYSTEM_PORT is read as HOMING_METRICS_PORT; rename it'])
  const off = parseSettings(routerCommand, [], { DYN_SYSTEM_PORT: '-1' })
  t.equal(off.settings.metricsPort, undefined)
  for (const port of ['-x', '-', '-8081x', '--1'])
    t.strictSame(parseSettings(routerCommand, [], { DYN_SYSTEM_PORT: port }).warnings, [
      `DYN_SYSTEM_PORT: "${port}" is not a number; ignored`,
    ])
})

t.test('variables that Kubernetes makes of Services are none of ours', async t => {
  const links = {
    HOMING_SERVICE_HOST: '10.96.0.7',
    HOMING_SERVICE_PORT: '80',
    HOMING_SERVICE_PORT_HTTP: '80',
    HOMING_PORT: 'tcp://10.96.0.7:80',
    HOMING_PORT_80_TCP: 'tcp://10.96.0.7:80',
    HOMING_PORT_80_TCP_PROTO: 'tcp',
    HOMING_PORT_80_TCP_PORT: '80',
    HOMING_PORT_80_TCP_ADDR: '10.96.0.7',
    HOMING_ADMIN_SERVICE_HOST: 'fd00::7',
    HOMING_ADMIN_SERVICE_PORT: '9000',
    HOMING_ADMIN_PORT: 'tcp://[fd00::7]:9000',
    HOMING_PICKER_PORT: 'tcp://fd00::8:9002',
  }
  const { settings, sources, warnings } = parseSettings(routerCommand, [], links)
  t.equal(settings.port, 8000)
  t.equal(settings.adminPort, undefined)
  t.equal(sources.port.kind, 'default')
  t.match(warnings.toSorted(), [
    /^HOMING_ADMIN_PORT is ignored: it is the address of a Service.* set enableServiceLinks: false/,
    /^HOMING_PICKER_PORT is ignored: /,
    /^HOMING_PORT is ignored: /,
  ])
  t.equal(warnings.length, 3)
  const beside = parseSettings(routerCommand, [], { ...links, HOMING_PORT: '8001', HOMING_PROT: '1' })
  t.equal(beside.settings.port, 8001, 'what the user sets in its place counts')
  t.match(beside.warnings.join(' '), /HOMING_PROT is not a setting/)
  t.match(faultsOf([], { HOMING_PORT: 'tcp://10.96.0.7' }), [/^HOMING_PORT: .* is not a number$/])
})

t.test('a file holds the same names, lists as lists or texts', async t => {
  const dir = t.testdir({
    'homing.yaml':
      'workers: [http://a:1, "http://b:1"]\nno-such: 1\nkv-events: false\nseed: 7\nprobe-interval:\n',
    'good.yaml': 'worker: http://a:1 http://b:1\nkv-events: false\nseed: 7\nreplay-timeout: 2\n',
    'empty.yaml': '# nothing\n',
  })
  t.strictSame(faultsOf([], {}, `${dir}/homing.yaml`), [`unknown setting no-such in ${dir}/homing.yaml`])
  const { settings } = parseSettings(routerCommand, [], {}, { configFile: `${dir}/good.yaml` })
  t.strictSame(settings.workers, ['http://a:1', 'http://b:1'])
  t.equal(settings.kvEvents, false)
  t.equal(settings.seed, 7)
  t.equal(settings.replayTimeoutMs, 2000)
  t.strictSame(faultsOf([], {}, `${dir}/empty.yaml`), [])
})

t.test('a file that cannot be used is one fault beside the others', async t => {
  const dir = t.testdir({ 'list.yaml': '- 1', 'broken.yaml': 'port: [', 'nested.yaml': 'port: {a: 1}' })
  const path = (name: string) => `${dir}/${name}`
  t.match(faultsOf(['--port', 'x'], {}, path('gone.yaml')), [/cannot read the settings file .*ENOENT/, /"x"/])
  t.match(faultsOf([], {}, path('list.yaml')), [/is not a mapping of names to values/])
  t.match(faultsOf([], {}, path('broken.yaml')), [/cannot read the settings file/])
  t.match(faultsOf([], {}, path('nested.yaml')), [/^port in .*: needs one value$/])
})

t.test('an unknown policy is refused with the nearest name', async t => {
  t.strictSame(faultsOf(['--router-policy', 'prodcut']), [
    '--router-policy: "prodcut" is not one of auto, linear, product, est-ttft, threshold; did you mean product?',
  ])
})

t.test('options of policies that are not chosen, and an estimate of nothing, are refused', async t => {
  for (const argv of [
    ['--est-ttft-ms-per-token', '1'],
    ['--router-policy', 'product', '--router-decode-active-request-weight', '1'],
    ['--router-policy', 'linear', '--router-guard-share', '0.1'],
    ['--router-temperature', '1', '--router-guard-share', '0.1'],
    ['--router-mode', 'random', '--router-guard-share', '0.1'],
    ['--selection-module', 'mine.ts', '--router-guard-share', '0.1'],
    ['--selection-module', 'mine.ts', '--router-mode', 'random'],
  ]) {
    t.match(faultsOf(argv), [/no effect/], argv.join(' '))
  }
  const none = ['--est-ttft-ms-per-token', '0', '--est-ttft-attention-ms-per-million-pairs', '0']
  t.match(faultsOf(['--router-policy', 'est-ttft', ...none]), [/all workers would cost the same/])
  t.match(faultsOf(['--selection-module', 'mine.ts', '--router-policy', 'product']), [
    /leave one of them out/,
  ])
})

t.test('the policy is auto, unless something is given that only the linear rule has', async t => {
  const policyOf = (argv: readonly string[], env = {}): string =>
    parseSettings(routerCommand, argv, env).settings.routerPolicy
  t.equal(policyOf([]), 'auto')
  t.equal(policyOf(['--kv-overlap-score-weight', '1']), 'linear', 'its default, given')
  t.equal(policyOf(['--router-temperature', '0.5']), 'linear')
  t.equal(policyOf(['--router-temperature', '0', '--router-decode-active-request-weight', '0']), 'auto')
  t.equal(policyOf([], { HOMING_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT: '1' }), 'linear')
  t.equal(policyOf(['--router-policy', 'product', '--router-temperature', '0.5']), 'product')
  t.equal(policyOf(['--router-policy', 'auto', '--kv-overlap-score-weight', '0']), 'auto')
  t.match(faultsOf(['--router-policy', 'auto', '--kv-overlap-score-weight', '4']), [/no effect on .* auto/])
  t.equal(completeSettings(routerCommand, { overlapWeight: 4 }).routerPolicy, 'linear')
  t.equal(completeSettings(routerCommand, {}).routerPolicy, 'auto')
})

t.test(
  'where caches are ignored the index takes one thread and the least memory, unless it was sized',
  async t => {
    const of = (...argv: string[]) =>
      parseSettings(routerCommand, ['--kv-overlap-score-weight', '0', ...argv], {}, { machine }).settings
    t.match(of(), { eventThreads: 1, indexBytes: 2 ** 20 })
    t.equal(of('--worker-slots-max', '16384').eventThreads, 1, 'and it suits its tables')
    t.match(of('--index-bytes', '64MiB'), { eventThreads: 4, indexBytes: 2 ** 26 })
    t.equal(completeSettings(routerCommand, { overlapWeight: 0 }).eventThreads, 1)
  },
)

t.test('a policy and a queue that follow from other options are told', async t => {
  const read = (...argv: string[]) => parseSettings(routerCommand, argv, {})
  for (const argv of [
    ['--router-temperature', '0'],
    ['--router-policy', 'linear'],
    ['--router-mode', 'random', '--router-temperature', '1'],
    ['--router-queue-policy', 'wspt'],
  ]) {
    t.strictSame(read(...argv).warnings, [], argv.join(' '))
  }
  t.strictSame(read('--kv-overlap-score-weight', '1').warnings, [
    '--kv-overlap-score-weight is given without a policy, so --router-policy is linear, and no request waits in the router (--router-queue-threshold 2 would hold some); name a policy to choose another',
  ])
  const withThreshold = read('--router-temperature', '1', '--router-queue-threshold', '2')
  t.match(withThreshold.warnings, [/^--router-temperature .* is linear; name a policy/])
})

t.test('an order of the queue turns the queue on, or says why it does nothing', async t => {
  const read = (...argv: string[]) =>
    parseSettings(routerCommand, ['--router-queue-policy', 'wspt', ...argv], {})
  t.equal(read('--router-policy', 'linear').settings.queueThreshold, 'auto', 'which is 2 there')
  t.equal(read('--router-temperature', '1').settings.queueThreshold, 'auto')
  t.equal(read().settings.queueThreshold, undefined, 'policy auto has a queue')
  t.strictSame(read('--router-policy', 'linear').warnings, [])
  t.strictSame(read('--router-policy', 'linear', '--router-queue-threshold', 'None').warnings, [
    '--router-queue-policy wspt has no effect: --router-queue-threshold none lets no request wait',
  ])
  const uncounted = read('--router-policy', 'linear', '--no-router-track-prefill-tokens')
  t.equal(uncounted.settings.queueThreshold, undefined)
  t.match(uncounted.warnings, [/^--router-queue-policy wspt has no effect: .* does not count$/])
  const embedded = completeSettings(routerCommand, { routerPolicy: 'linear', queueOrder: 'wspt' })
  t.equal(embedded.queueThreshold, 'auto')
})

t.test('names and variables of the credit form are understood', async t => {
  const { settings } = parseSettings(
    routerCommand,
    ['--router-prefill-load-scale', '4', '--router-kv-overlap-score-credit', '0.5'],
    { DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY: '0.1', DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT: '2' },
  )
  t.match(settings, { overlapWeight: 4, overlapCredit: 0.5, creditDecay: 0.1, activeRequestWeight: 2 })
})

t.test('settings that have no effect together are refused', async t => {
  t.match(faultsOf(['--worker', 'http://a:1', '--demo-speed', '2']), [/no effect when workers are named/])
  t.strictSame(faultsOf(['--demo-speed', '2']), [])
})

t.test('help is asked for wherever it stands', async t => {
  t.ok(asksForHelp(routerCommand, ['--port', '1', '--help']))
  t.ok(asksForHelp(routerCommand, ['--port', '--help']))
  t.ok(asksForHelp(routerCommand, ['--config', '/none', '--no-audit', '-h']))
  t.notOk(asksForHelp(routerCommand, ['--port', '1']))
  t.notOk(asksForHelp(routerCommand, ['--bogus']), 'which the parser will tell')
})

t.test('what does not exist is told beside --help as well', async t => {
  for (const [argv, why] of [
    [['--help', '--bogus'], /unknown option --bogus/],
    [['--prot', '1', '-h'], /unknown option --prot; did you mean --port\?/],
    [['--help', 'engine'], /unexpected argument "engine"/],
    [['--no-port', '--help'], /unknown option --no-port/],
  ] as const) {
    t.throws(() => asksForHelp(routerCommand, argv), { message: why }, argv.join(' '))
  }
})

t.test('a list that is given and names nothing is a fault, and never the default', async t => {
  for (const text of [',', ' ', ', ,']) {
    t.strictSame(faultsOf([], { HOMING_WORKERS: text }), [
      'HOMING_WORKERS: the list is empty; leave it out, or name one',
    ])
  }
  const dir = t.testdir({
    'empty.yaml': 'worker: []\n',
    'comma.yaml': 'worker: ","\n',
    'null.yaml': 'worker:\n',
  })
  for (const file of ['empty', 'comma']) {
    const [fault, ...others] = faultsOf([], { HOMING_CONFIG: `${dir}/${file}.yaml` })
    t.match(fault, /^worker in .*: the list is empty; /)
    t.strictSame(others, [])
  }
  t.strictSame(faultsOf([], { HOMING_CONFIG: `${dir}/null.yaml` }), [], 'a name without a value is not given')
  t.strictSame(faultsOf([], { HOMING_WORKERS: '' }), [], 'nor is an empty variable')
})

t.test('an empty list in a file means none, also where the file is written by a program', async t => {
  const dir = t.testdir({
    'indexer.yaml': 'workers: []\npeers: []\n',
    'router.yaml': 'tokenizers: []\nrelay-route: []\n',
    'comma.yaml': 'peers: ","\n',
  })
  const indexer = parseSettings(indexerCommand, [], {}, { configFile: `${dir}/indexer.yaml` })
  t.strictSame([indexer.settings.workers, indexer.settings.peers], [[], []])
  t.strictSame(indexer.sources.peers, { kind: 'file', name: `peers in ${dir}/indexer.yaml` })
  const router = parseSettings(routerCommand, [], {}, { configFile: `${dir}/router.yaml` })
  t.strictSame([router.settings.tokenizers, router.settings.relayRoutes], [[], []])
  t.throws(() => parseSettings(indexerCommand, [], {}, { configFile: `${dir}/comma.yaml` }), {
    message: /peers in .*: the list is empty; leave it out, or name one/,
  })
})

t.test('an address may be given as it stands in a URL', async t => {
  for (const [given, host] of [
    ['[::1]', '::1'],
    ['[fe80::1%eth0]', 'fe80::1%eth0'],
    ['::1', '::1'],
    ['127.0.0.1', '127.0.0.1'],
  ] as const) {
    for (const command of [routerCommand, indexerCommand, sidecarCommand] as readonly Command[]) {
      const argv = command === sidecarCommand ? ['--events', 'tcp://h:5557'] : []
      const { settings } = parseSettings(command, [...argv, '--host', given], {})
      t.equal((settings as { readonly host: string }).host, host, `${command.name} ${given}`)
    }
  }
})

t.test('limits of requests are those of a sidecar that takes requests', async t => {
  const refused = (argv: readonly string[], fault: RegExp): void => {
    const given = ['--events', 'tcp://h:5557', '--event-plane', 'nats', '--worker', 'h:8000', ...argv]
    t.throws(() => parseSettings(sidecarCommand, given, {}), { message: fault })
  }
  for (const limit of ['--max-open-requests', '--max-body-bytes', '--max-bodies-bytes', '--body-timeout'])
    refused([limit, '2000'], new RegExp(`${limit} has no effect without --request-plane nats`))
  for (const given of ['--request-port', '--max-tcp-streams', '--max-tcp-connections'])
    refused([given, '2000'], new RegExp(`${given} has no effect without --request-plane tcp`))
  refused(['--role', 'prefill'], /--role needs --register/)
  const takes = ['--register', 'test', '--request-plane', 'nats']
  refused(
    [...takes, '--max-bodies-bytes', '2000', '--max-body-bytes', '4000'],
    /--max-bodies-bytes 2000 is less than one body of --max-body-bytes 4000/,
  )
  refused([...takes, '--body-timeout', '500ms'], /--body-timeout/)
})

t.test('every name, key and variable of the router stands for one setting', async t => {
  const names = routerCommand.settings.flatMap((setting: SettingDescriptor) => [
    setting.name,
    ...(setting.aliases ?? []),
  ])
  const variables = routerCommand.settings.flatMap((setting: SettingDescriptor) => [
    environmentName(setting),
    ...(setting.envAliases ?? []).map(alias => alias.name),
  ])
  const keys = routerCommand.settings.map(setting => setting.key)
  for (const list of [names, variables, keys]) t.equal(new Set(list).size, list.length)
})

t.test('the winner among all places is the highest that gives a value, whatever the values are', async t => {
  const command: Command = {
    name: 'test',
    summary: 'x',
    examples: [],
    settings: ['a', 'b', 'c'].map(name => ({
      key: name,
      name,
      group: 'g',
      kind: 'integer',
      default: 0,
      min: 0,
      max: 9,
      help: 'h',
      envAliases: [{ name: `DYN_${name.toUpperCase()}` }],
    })),
  }
  const place = fc.dictionary(fc.constantFrom('a', 'b', 'c'), fc.integer({ min: 1, max: 9 }))
  let run = 0
  const dir = t.testdir({})
  const { writeFileSync } = await import('node:fs')
  const agree = fc.property(place, place, place, place, (line, own, alias, file) => {
    const env: Record<string, string> = {}
    for (const [name, value] of Object.entries(own)) env[`HOMING_${name.toUpperCase()}`] = String(value)
    for (const [name, value] of Object.entries(alias)) env[`DYN_${name.toUpperCase()}`] = String(value)
    const configFile = `${dir}/${run++}.yaml`
    writeFileSync(configFile, JSON.stringify(file))
    const argv = Object.entries(line).flatMap(([name, value]) => [`--${name}`, String(value)])

    const { settings, warnings } = parseSettings(command, argv, env, { configFile })

    const expected = { a: 0, b: 0, c: 0, ...file, ...alias, ...own, ...line }
    assert.deepEqual({ ...settings }, expected)
    assert.equal(warnings.length, Object.keys(alias).length)
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('a namespace of streams is refused where two names would be one stream', async t => {
  for (const command of [routerCommand, sidecarCommand] as readonly Command[]) {
    const read = (name: string) =>
      parseSettings(
        command,
        ['--namespace', name, ...(command.name === 'router' ? [] : ['--events', 'tcp://127.0.0.1:5557'])],
        {},
        { machine },
      ).settings['streamNamespace']
    for (const name of ['a_b', 'a-b', 'A', 'default', 'x'.repeat(64)]) t.equal(read(name), name)
    for (const name of ['a.b', '.', '', 'a b', 'x'.repeat(65)])
      t.throws(() => read(name), { message: /--namespace/ }, `${command.name} ${name}`)
  }
  t.match(faultsOf(['--namespace', 'a.b']), [
    /"a\.b" is not 1 to 64 letters, digits, '-' and '_' \(a stream has no dots in its name\)/,
  ])
})
