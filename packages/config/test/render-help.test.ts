import t from 'tap'
import { environmentName } from '../src/descriptor.ts'
import { parseSettings, renderHelp, renderReference, routerCommand } from '../src/index.ts'

const help = renderHelp(routerCommand, { machine: { cores: 2 }, widthColumns: 90 })

t.test('the help has every option with its default and its variable', async t => {
  for (const setting of routerCommand.settings) {
    const at = help.indexOf(`\n  --${setting.name}`)
    t.ok(at >= 0, setting.name)
    const entry = help.slice(at, help.indexOf('\n  --', at + 1))
    t.match(entry, 'default ', setting.name)
    t.match(entry, environmentName(setting), setting.name)
  }
  t.match(help, 'default 8000 · range 0 … 65535')
  t.match(help, 'default 1, which is min(4, cores − 1), at least 1 · range 1 … 64')
  t.match(help, 'default kv · one of kv, random, round-robin, least-loaded')
})

t.test('the help has three examples and stays within its width', async t => {
  t.equal(help.split('\nExamples\n')[1]?.match(/^ {4}homing /gm)?.length, 3)
  const options = help.slice(0, help.indexOf('\nExamples\n')).split('\n').slice(1)
  for (const line of options) t.ok(line.length <= 90, line)
})

t.test(
  'the reference has a row for every option, with its key, and does not depend on the machine',
  async t => {
    const reference = renderReference(routerCommand)
    for (const { name, key } of routerCommand.settings) {
      const row = reference.split('\n').find(line => line.startsWith(`| \`--${name}`))
      t.match(row, `| \`${key}\` |`, name)
    }
    t.match(reference, '| min(4, cores − 1), at least 1 |')
  },
)

t.test('the examples are lines that the parser accepts', async t => {
  for (const { line } of routerCommand.examples) {
    const [program, command, ...argv] = line.split(' ')
    t.equal(`${program} ${command}`, 'homing router')
    t.doesNotThrow(() => parseSettings(routerCommand, argv, {}), line)
  }
})
