/** Every error class of the sources is made with texts of 100,000 characters: its message stays short. */

import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { CodedError, LIST_CHARACTERS_MAX, MESSAGE_CHARACTERS_MAX } from '@homing/base'
import t from 'tap'
import { readRepository } from './repository.ts'

const ROOT = join(import.meta.dirname, '..')
const LONG = 'm'.repeat(100_000)
/** Any field of it is a long text, too. */
const RECORD: object = new Proxy(
  { message: LONG },
  { get: (_, name) => (typeof name === 'string' && name !== 'charactersMax' ? LONG : undefined) },
)
const VALUES = [LONG, [LONG], 7, RECORD, [RECORD], new Error(LONG), undefined]
const ARGUMENTS_MAX = 5
/** Of one class: enough for each kind of argument in each place. */
const MADE_MAX = 30
/** What an operator wrote, with all that is wrong in it. */
const LISTS = new Set([
  'BadAdminKeysError',
  'BadClientKeysError',
  'BadPolicyClassesError',
  'InvalidEngineSettingsError',
  'RemoteError',
  'SeedFailedError',
  'SettingsError',
])

const { files } = readRepository(ROOT)
const declared = files
  .filter(({ path }) => /^(?:packages|actors)\/[^/]+\/src\//.test(path))
  .flatMap(({ path, code }) =>
    [...code.matchAll(/export class (\w+) extends \w*Error\b/g)].map(([, name]) => ({ path, name: name! })),
  )

t.test('no error repeats a long text whole', async t => {
  t.ok(declared.length > 80, `${declared.length} classes are found`)
  for (const { path, name } of declared) {
    const module = (await import(pathToFileURL(join(ROOT, path)).href)) as Record<string, unknown>
    const made = instances(module[name] as new (...all: unknown[]) => unknown)
    const coded = made.filter(one => one instanceof CodedError)
    if (made.length > coded.length) continue // Caught where it is thrown: no client reads it.
    t.ok(coded.length > 0, `${name} of ${path} can be made`)
    const max = LISTS.has(name) ? LIST_CHARACTERS_MAX : MESSAGE_CHARACTERS_MAX
    let longest = 0
    for (const { message, details } of coded) longest = Math.max(longest, message.length, longestOf(details))
    t.ok(longest <= max, `${name} of ${path} has at most ${max} characters: ${longest}`)
  }
})

/** Of its texts: a class that is given an object for a text has no other bound than its type. */
function longestOf(details: CodedError['details']): number {
  let longest = 0
  for (const value of Object.values(details))
    if (typeof value === 'string') longest = Math.max(longest, value.length)
  return longest
}

/** One for each choice of arguments that the class takes. */
function instances(Class: new (...all: unknown[]) => unknown): readonly unknown[] {
  const made: unknown[] = []
  for (let choice = 0; choice < VALUES.length ** 2 * 4 && made.length < MADE_MAX; choice++) {
    const rest = VALUES[Math.floor(choice / VALUES.length ** 2)]
    const given = Array.from({ length: ARGUMENTS_MAX }, (_, at) =>
      at === 0
        ? VALUES[choice % VALUES.length]
        : at === 1
          ? VALUES[Math.floor(choice / VALUES.length) % VALUES.length]
          : rest,
    )
    try {
      made.push(new Class(...given))
    } catch (thrown) {
      if (!(thrown instanceof TypeError)) throw thrown
    }
  }
  return made
}
