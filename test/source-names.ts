/**
 * Source names: names and constants that sources declare: what they export, the words in it, the values, and
 * the codes of errors.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { runInNewContext } from 'node:vm'
import { type SourceFile, sources } from './repository.ts'

interface RuledOutWord {
  readonly word: string
  readonly instead: string
  /** Names that may stay. */
  readonly allowed: ReadonlySet<string>
  /** Finds it in the words of a name. */
  readonly pattern: RegExp
}

/** The table at the end of docs/glossary.md. */
export function ruledOutWords(root: string): readonly RuledOutWord[] {
  const page = readFileSync(join(root, 'docs/glossary.md'), 'utf8')
  const [, section = ''] = /^## Words that are ruled out$([\s\S]*)/m.exec(page) ?? []
  return [...section.matchAll(/^\| ([a-z][a-z ]*) \| ([^|]+) \|([^|]*)\|$/gm)]
    .filter(([, word]) => word !== 'ruled out')
    .map(([, word, instead, allowed]) => ({
      word: word!,
      instead: instead!,
      allowed: new Set(Array.from(allowed!.matchAll(/`(\w+)`/g), ([, name]) => name!)),
      pattern: new RegExp(`(^| )${word}(s|es)?( |$)`),
    }))
}

/** Names that files export where they declare them; what an index hands on is among them. */
export function exportedNames(
  files: readonly SourceFile[],
): readonly { readonly path: string; readonly name: string }[] {
  const declaration =
    /^export (?:declare |default |abstract |async )*(?:interface|type|class|function\*?|const|let|enum) (\w+)/gm
  const renamed = /\bas (\w+)(?=[^{}]*\})/g
  return files.flatMap(({ path, code }) =>
    [
      ...code.matchAll(declaration),
      ...Array.from(code.matchAll(/^export (?:type )?\{[^}]*\}/gm), ([list]) => [
        ...list.matchAll(renamed),
      ]).flat(),
    ].map(([, name]) => ({ path, name: name! })),
  )
}

/** `CacheHits`, `cacheHits` and `CACHE_HITS` to `cache hits`. */
export function wordsOf(name: string): string {
  return name
    .replace(/([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])/g, '$1$3 $2')
    .replaceAll('_', ' ')
    .replace(/ +/g, ' ')
    .toLowerCase()
}

/** Units that values are written in. */
const UNITS: Readonly<Record<string, number>> = {
  ...{ KIB: 2 ** 10, MIB: 2 ** 20, GIB: 2 ** 30 },
  ...{ SECOND_MS: 1000, MINUTE_MS: 60_000, HOUR_MS: 3_600_000 },
}

interface Constant {
  readonly path: string
  readonly name: string
  /** As it is compared: a number in digits, a text or a list of texts as it is written. */
  readonly value: string
  readonly isList: boolean
}

/**
 * Constants of files whose value is a number, a text, or a list of three or more texts. Names of one word are
 * left out: they number the words of a layout, or the states of a thing, for their own file.
 */
export function constantsOf(files: readonly SourceFile[]): readonly Constant[] {
  const declaration =
    /^(?:export )?const ([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z]+S)(?:: [^=\n]+)? = (.+?)(?: as const)?$/gm
  return files.flatMap(({ path, code }) =>
    Array.from(code.matchAll(declaration), ([, name, written]) => {
      const isList = /^\[('[^']*', ){2,}'[^']*'\]$/.test(written!)
      const isText = /^'[^']*'$/.test(written!)
      if (!isList && !name!.includes('_')) return undefined
      const value = isList ? listValue(written!) : isText ? written : numberValue(written!)
      return value === undefined ? undefined : { path, name: name!, value, isList }
    }).filter(constant => constant !== undefined),
  )
}

/** The order of a list is its user's. */
function listValue(written: string): string {
  return written.slice(1, -1).split(', ').sort().join(', ')
}

/** `8 * MIB` and `8_388_608` are one value; undefined: it is no number. */
function numberValue(written: string): string | undefined {
  const digits = written
    .replace(/\b[A-Z]+(?:_[A-Z]+)*\b/g, name => String(UNITS[name] ?? name))
    .replace(/(?<=[0-9a-f])_(?=[0-9a-f])/g, '')
  if (!/^[-+*/() 0-9.]*(?:0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?|[-+*/() ])+$/.test(digits))
    return undefined
  return String(Number(runInNewContext(digits)))
}

export function errorCodes(files: readonly SourceFile[]): ReadonlyMap<string, string> {
  const codes = new Map<string, string>()
  for (const file of sources(files)) {
    // In config, HOMING_* in quotes is a variable unless it is said to be a code.
    const pattern = file.path.startsWith('packages/config/')
      ? /code(?:: string)? = '(HOMING_[A-Z0-9_]+)'/g
      : /(?<!\benv: )'(HOMING_[A-Z0-9]+_[A-Z0-9_]+)'/g
    for (const [, code] of file.code.matchAll(pattern)) codes.set(code!, file.path)
  }
  return codes
}
