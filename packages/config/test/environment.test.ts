/** Variables: our own, those of DYN_*, and those that mean nothing here. */

import assert from 'node:assert/strict'
import t from 'tap'
import { parseSettings, routerCommand, type SettingDescriptor, SettingsError } from '../src/index.ts'
import { faultsOf } from './router-faults.ts'

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
