/**
 * Pool directory: a directory that stands for the memory of a pool, which the engines of one machine share.
 *
 *   DIR/pool-7/127.0.0.1-5557/0000000000000abc      an empty file for each block: pool, owner, engine hash
 *
 * Each rank writes its own folder, named after its address and port of events, and reads all of them. A
 * folder outlives its process, as pooled memory does, until the next life of that rank empties it.
 *
 * Engines find blocks of each other only if they agree on block size and hash seed.
 * Cost  one look for each block and owner; all of it is synchronous, since a file of a tmpfs takes
 * microseconds.
 */

import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { hexOfHash } from './engine-hash.ts'

export class PoolDirectory {
  readonly #pool: string
  readonly #own: string

  /** Empties the folder of the owner. Throws what the file system does. */
  constructor(directory: string, poolId: number, owner: string) {
    this.#pool = join(directory, `pool-${poolId}`)
    this.#own = join(this.#pool, owner.replace(/[^A-Za-z0-9.]+/g, '-'))
    this.clear()
  }

  /** False: the file system did not take it. */
  put([low, high]: readonly [number, number]): boolean {
    try {
      writeFileSync(join(this.#own, hexOfHash(low, high)), '')
      return true
    } catch {
      return false
    }
  }

  /** A block that is not there is gone already. */
  remove([low, high]: readonly [number, number]): void {
    rmSync(join(this.#own, hexOfHash(low, high)), { force: true })
  }

  clear(): void {
    rmSync(this.#own, { recursive: true, force: true })
    mkdirSync(this.#own, { recursive: true })
  }

  /** How many of these leading blocks are in the pool, of any owner. `hashes`: pairs of words. */
  leading(hashes: Int32Array): number {
    if (hashes.length === 0) return 0
    const owners = readdirSync(this.#pool).map(owner => join(this.#pool, owner))
    for (let at = 0; at < hashes.length; at += 2) {
      const name = hexOfHash(hashes[at]!, hashes[at + 1]!)
      const known = owners.findIndex(owner => existsSync(join(owner, name)))
      if (known < 0) return at / 2
      // A prompt mostly comes from one owner, which is asked first from here on.
      if (known > 0) owners.unshift(...owners.splice(known, 1))
    }
    return hashes.length / 2
  }
}
