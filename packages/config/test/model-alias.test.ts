import t from 'tap'
import { modelAliasFault, parseSettings, readModelAlias, routerCommand, SettingsError } from '../src/index.ts'

t.test('an alias has a name, or the beginning of names, and models in order', async t => {
  for (const [text, name, isBeginning, models] of [
    ['haiku=qwen', 'haiku', false, ['qwen']],
    ['claude-*=org/qwen:8b', 'claude-', true, ['org/qwen:8b']],
    ['*=a|b', '', true, ['a', 'b']],
    ['large = large | small', 'large', false, ['large', 'small']],
    ['a=b=c', 'a', false, ['b=c']],
  ] as const) {
    t.equal(modelAliasFault(text), undefined, text)
    t.strictSame(readModelAlias(text), { name, isBeginning, models }, text)
  }
})

t.test('what is no alias is refused, with what would be right', async t => {
  for (const [text, why] of [
    ['haiku', /names no alias before an '='; use NAME=MODEL/],
    ['=qwen', /names no alias/],
    ['haiku=', /has an empty model/],
    ['haiku=a||b', /has an empty model/],
    ['cl*ude=a', /'\*' that is not at the end/],
    ['a=qwen*', /'\*' in a model/],
  ] as const) {
    t.match(modelAliasFault(text), why, text)
  }
  t.throws(
    () => parseSettings(routerCommand, ['--model-alias', 'x'], {}, { machine: { cores: 2 } }),
    SettingsError,
  )
})

t.test('headers and fields of sessions are names', async t => {
  const parse = (...argv: string[]) =>
    parseSettings(routerCommand, argv, {}, { machine: { cores: 2 } }).settings
  t.strictSame(parse('--router-session-header', 'X-My_Session').affinityHeaders, ['X-My_Session'])
  t.strictSame(parse('--router-session-field', 'user').affinityFields, ['user'])
  t.throws(() => parse('--router-session-header', 'a b:'), SettingsError)
  t.throws(() => parse('--router-session-field', 'a"b'), SettingsError)
})
