/** What a page of docs/ has users type: its fences, with the section each is in, and commands in its text. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const DOCS = join(import.meta.dirname, '../../docs')

export interface Fence {
  /** The last heading of the second level before it. */
  readonly section: string
  /** Empty: it names none. */
  readonly language: string
  /** Whole lines. */
  readonly text: string
}

export interface TypedPage {
  readonly fences: readonly Fence[]
  /** What stands between backticks in the text. */
  readonly inline: readonly string[]
}

export function pageOf(name: string): TypedPage {
  const fences: Fence[] = []
  const inline: string[] = []
  let section = ''
  let open: { language: string; lines: string[] } | undefined
  for (const line of readFileSync(join(DOCS, name), 'utf8').split('\n')) {
    const mark = /^ *```(.*)$/.exec(line)
    if (mark !== null && open === undefined) open = { language: mark[1]!, lines: [] }
    else if (mark !== null) {
      const { language, lines } = open!
      fences.push({ section, language, text: lines.map(each => `${each}\n`).join('') })
      open = undefined
    } else if (open !== undefined) open.lines.push(line)
    else {
      section = /^## (.*)$/.exec(line)?.[1] ?? section
      for (const [, text] of line.matchAll(/`([^`]+)`/g)) inline.push(text!)
    }
  }
  return { fences, inline }
}

export const fencesOf = (name: string): readonly Fence[] => pageOf(name).fences

/** Words as a shell makes them of a line without variables; what follows ` # ` is left out. */
export function wordsOf(line: string): readonly string[] {
  const words = line.replace(/\s+#\s.*$/, '').match(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? []
  return words.map(word => word.replaceAll(/['"]/g, ''))
}
