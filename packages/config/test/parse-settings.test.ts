/** Where settings come from, which place wins, and how each is written. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { environmentName } from '../src/descriptor.ts'
import {
  asksForHelp,
  type Command,
  indexerCommand,
  parseSettings,
  routerCommand,
  type SettingDescriptor,
  sidecarCommand,
} from '../src/index.ts'
import { faultsOf, machine } from './router-faults.ts'

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

t.test('URLs of several workers in one word are told how to be given', async t => {
  const [fault, ...others] = faultsOf(['--worker', 'http://a:8001,http://b:8001'])
  t.match(fault, /has several URLs: give --worker once for each$/)
  t.strictSame(others, [])
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
