/**
 * NaiveIndex: the definition of the index, with maps and strings. A block is the text of its path.
 */

import type { Copies } from '../src/index.ts'

interface Held {
  path: string
  copies: number
}

interface Orphan {
  readonly parent: bigint
  readonly local: bigint
  copies: number
}

interface NaiveWorker {
  readonly held: Map<bigint, Held>
  readonly orphans: Map<bigint, Orphan>
}

export class NaiveIndex {
  readonly #workers = new Map<number, NaiveWorker>()

  store(
    slot: number,
    parent: bigint | undefined,
    engines: bigint[],
    locals: bigint[],
    copies: Copies,
  ): boolean {
    const worker = this.#worker(slot)
    let above = parent
    let hasParked = false
    for (let i = 0; i < engines.length; i++) {
      const path = above === undefined ? '' : worker.held.get(above)?.path
      if (path === undefined)
        hasParked = this.#park(worker, above!, engines[i]!, locals[i]!, copies) || hasParked
      else this.#place(worker, path, engines[i]!, locals[i]!, copies, 1)
      above = engines[i]!
    }
    return hasParked
  }

  /** `left`: hashes that went with more copies than one, and how many more. */
  remove(
    slot: number,
    engines: bigint[],
    copies: Copies,
  ): { readonly removed: number; readonly left: [bigint, number][] } {
    const worker = this.#worker(slot)
    const left: [bigint, number][] = []
    let removed = 0
    for (const engine of engines) {
      const from = worker.held.has(engine) ? worker.held : worker.orphans
      const entry = from.get(engine)
      if (entry === undefined) continue
      removed++
      entry.copies--
      if (copies === 'set' && entry.copies > 0) left.push([engine, entry.copies])
      if (copies === 'set' || entry.copies === 0) from.delete(engine)
    }
    return { removed, left }
  }

  clear(slot: number): void {
    this.#workers.delete(slot)
  }

  overlap(locals: bigint[]): Map<number, number> {
    const scores = new Map<number, number>()
    for (const [slot, worker] of this.#workers) {
      const paths = this.#paths(worker)
      let path = ''
      let blocks = 0
      for (const local of locals) {
        path = child(path, local)
        if (!paths.has(path)) break
        blocks++
      }
      if (blocks > 0) scores.set(slot, blocks)
    }
    return scores
  }

  blocksHeld(slot: number): number {
    return this.#paths(this.#worker(slot)).size
  }

  /** engine hash → position and copies. */
  dump(slot: number): Map<bigint, string> {
    const dump = new Map<bigint, string>()
    const worker = this.#worker(slot)
    const paths = this.#paths(worker)
    for (const [engine, { path, copies }] of worker.held) {
      const words = path.split('/')
      const isReachable = words.every((_, i) => i === 0 || paths.has(words.slice(0, i + 1).join('/')))
      dump.set(engine, `position ${words.length - 2} local ${words.at(-1)} copies ${copies} ${isReachable}`)
    }
    return dump
  }

  get orphanBlocks(): number {
    let count = 0
    for (const worker of this.#workers.values()) count += worker.orphans.size
    return count
  }

  get memberships(): number {
    let count = 0
    for (const worker of this.#workers.values()) count += this.#paths(worker).size
    return count
  }

  #worker(slot: number): NaiveWorker {
    let worker = this.#workers.get(slot)
    if (worker === undefined) {
      worker = { held: new Map(), orphans: new Map() }
      this.#workers.set(slot, worker)
    }
    return worker
  }

  #paths(worker: NaiveWorker): Set<string> {
    return new Set([...worker.held.values()].map(held => held.path))
  }

  #place(
    worker: NaiveWorker,
    above: string,
    engine: bigint,
    local: bigint,
    copies: Copies,
    add: number,
  ): void {
    const path = child(above, local)
    worker.orphans.delete(engine)
    const held = worker.held.get(engine)
    if (held === undefined || held.path !== path) worker.held.set(engine, { path, copies: add })
    else if (copies === 'count') held.copies += add
    for (const [each, orphan] of [...worker.orphans]) {
      if (orphan.parent !== engine || !worker.orphans.has(each)) continue
      worker.orphans.delete(each)
      this.#place(worker, path, each, orphan.local, 'count', orphan.copies)
    }
  }

  /** True when the block waits for its parent. */
  #park(worker: NaiveWorker, parent: bigint, engine: bigint, local: bigint, copies: Copies): boolean {
    const held = worker.held.get(engine)
    if (held?.path.endsWith(`/${local}`)) {
      if (copies === 'count') held.copies++
      return false
    }
    worker.held.delete(engine)
    const orphan = worker.orphans.get(engine)
    if (orphan !== undefined && orphan.parent === parent && orphan.local === local) {
      if (copies === 'count') orphan.copies++
    } else {
      worker.orphans.set(engine, { parent, local, copies: 1 })
    }
    return true
  }
}

/** Hashes as the index wants them. */
export function pairs(hashes: readonly bigint[]): Int32Array {
  return new Int32Array(new BigUint64Array(hashes).buffer)
}

/** The 64-bit value of a pair. */
export function value(pair: readonly [number, number]): bigint {
  return (BigInt(pair[1] >>> 0) << 32n) | BigInt(pair[0] >>> 0)
}

function child(above: string, local: bigint): string {
  return `${above}/${local}`
}
