/**
 * The header comment of a bench, which says what it asks, does and checks: for the list of benches and for
 * --help.
 */

import { readFileSync } from 'node:fs'

/** The first comment of a file, without its marks. */
export function readHeader(path: string): string {
  const comment = /^\/\*\*\n(.*?)\n \*\//ms.exec(readFileSync(path, 'utf8'))?.[1] ?? ''
  return comment.replaceAll(/^ \* ?/gm, '')
}

/** What stands behind 'Question', on however many lines; undefined: the header has none. */
export function questionOf(header: string): string | undefined {
  const question = /^Question\s+(.*(?:\n[ ].*)*)/m.exec(header)?.[1]
  return question?.replaceAll(/\s*\n\s+/g, ' ')
}
