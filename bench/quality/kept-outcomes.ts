/**
 * Outcomes that a measurement over sockets keeps in a file, one line of JSON each, so that it can go on where
 * it was ended. They are of one set of options and of one version of the code: another needs another file.
 */

import { appendFile, readFile } from 'node:fs/promises'

export class KeptOutcomes<Key extends object, Outcome> {
  readonly #path: string | undefined
  readonly #known: readonly (Key & { readonly outcome: Outcome })[]

  private constructor(path: string | undefined, known: readonly (Key & { readonly outcome: Outcome })[]) {
    this.#path = path
    this.#known = known
  }

  /** Reads the file, which is made if it is not there. Undefined: nothing is kept. */
  static async open<Key extends object, Outcome>(
    path: string | undefined,
  ): Promise<KeptOutcomes<Key, Outcome>> {
    if (path === undefined) return new KeptOutcomes<Key, Outcome>(undefined, [])
    const text = await readFile(path, { encoding: 'utf8', flag: 'a+' })
    const lines = text.split('\n').filter(line => line !== '')
    return new KeptOutcomes<Key, Outcome>(
      path,
      lines.map(line => JSON.parse(line)),
    )
  }

  /** The outcome of a run with this key; undefined: there is none. */
  find(key: Key): Outcome | undefined {
    const names = Object.keys(key) as (keyof Key)[]
    return this.#known.find(row => names.every(name => row[name] === key[name]))?.outcome
  }

  async add(key: Key, outcome: Outcome): Promise<void> {
    if (this.#path !== undefined) await appendFile(this.#path, `${JSON.stringify({ ...key, outcome })}\n`)
  }
}
