/** YAML, or JSON, of a file that an operator wrote, as plain values. */

import { createRequire } from 'node:module'
import type * as yaml from 'yaml'
import { parseJson } from './parse-json.ts'

/** What a thread can read beside its work, in some tenths of a second, or seconds where it is amiss. */
export const YAML_BYTES_MAX = 64 * 1024

/**
 * Throws an error that says what is wrong, with the line where that is known, and repeats nothing of the
 * text. JSON may be of any length: it is read a hundred times as fast.
 */
export function readYaml(text: string): unknown {
  try {
    return parseJson(text)
  } catch {
    // Then it is YAML, or neither.
  }
  const bytes = Buffer.byteLength(text)
  if (bytes > YAML_BYTES_MAX)
    throw new Error(
      `it has ${bytes} bytes and is no JSON; the most as YAML is ${YAML_BYTES_MAX}: write it as JSON`,
    )
  // Loaded here: 72 modules, which a router without such a file does without.
  const { LineCounter, parseDocument } = createRequire(import.meta.url)('yaml') as typeof yaml
  const lineCounter = new LineCounter()
  // Pretty errors take the square of their number, and would repeat parts of the text.
  const document = parseDocument(text, { lineCounter, prettyErrors: false })
  const [error] = document.errors
  if (error !== undefined) {
    const { line, col } = lineCounter.linePos(error.pos[0])
    throw new Error(`it is no YAML at line ${line}, column ${col} (${error.code})`)
  }
  try {
    return document.toJS({ maxAliasCount: 0 })
  } catch {
    throw new Error('it has aliases, or too many levels')
  }
}
