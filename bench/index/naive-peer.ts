/**
 * NaivePeer: the plainest index that answers exactly, as a baseline: per worker a map from engine hash to the
 * path of the block, and one map from path to workers. Paths are rolling hashes as texts; no copies, no
 * orphans.
 */

export class NaivePeer {
  readonly #pathOf = new Map<number, Map<string, string>>()
  readonly #workersOf = new Map<string, Set<number>>()

  store(
    worker: number,
    parent: Int32Array | undefined,
    engines: Int32Array,
    locals: Int32Array,
    count: number,
  ): void {
    let paths = this.#pathOf.get(worker)
    if (paths === undefined) {
      paths = new Map()
      this.#pathOf.set(worker, paths)
    }
    let path = parent === undefined ? '' : paths.get(key(parent, 0))
    if (path === undefined) return
    for (let i = 0; i < count; i++) {
      path = below(path, locals, i)
      paths.set(key(engines, i), path)
      const workers = this.#workersOf.get(path)
      if (workers === undefined) this.#workersOf.set(path, new Set([worker]))
      else workers.add(worker)
    }
  }

  remove(worker: number, engines: Int32Array, count: number): void {
    const paths = this.#pathOf.get(worker)
    for (let i = 0; i < count; i++) {
      const engine = key(engines, i)
      const path = paths?.get(engine)
      if (path === undefined) continue
      paths!.delete(engine)
      const workers = this.#workersOf.get(path)!
      workers.delete(worker)
      if (workers.size === 0) this.#workersOf.delete(path)
    }
  }

  overlap(locals: Int32Array, count: number): Map<number, number> {
    const scores = new Map<number, number>()
    let active: number[] | undefined
    let path = ''
    for (let i = 0; i < count; i++) {
      path = below(path, locals, i)
      const workers = this.#workersOf.get(path)
      if (workers === undefined) break
      active = active === undefined ? [...workers] : active.filter(worker => workers.has(worker))
      if (active.length === 0) break
      for (const worker of active) scores.set(worker, i + 1)
    }
    return scores
  }
}

function key(hashes: Int32Array, i: number): string {
  return `${hashes[2 * i]},${hashes[2 * i + 1]}`
}

function below(path: string, locals: Int32Array, i: number): string {
  const comma = path.indexOf(',')
  const low = comma < 0 ? 0 : Number(path.slice(0, comma))
  const high = comma < 0 ? 0 : Number(path.slice(comma + 1))
  const nextLow = Math.imul(low ^ locals[2 * i]!, 0x9e3779b1) ^ (high >>> 15)
  const nextHigh = Math.imul(high ^ locals[2 * i + 1]!, 0x85ebca6b) + (nextLow >>> 7)
  return `${nextLow},${nextHigh | 0}`
}
