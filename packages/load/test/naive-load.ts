/** The definition of active load, computed from scratch at every question. */

export interface NaiveRequest {
  readonly slot: number
  /** Each block as text of its whole path, so that equal text is an equal block. */
  readonly path: readonly string[]
  prefillTokens: number
  outputBlocks: number
  lastSeenMs: number
}

export class NaiveLoad {
  readonly requests = new Map<string, NaiveRequest>()

  activeBlocks(slot: number): number {
    let outputBlocks = 0
    for (const request of this.#of(slot)) outputBlocks += request.outputBlocks
    return this.#blocks(slot).size + Math.round(outputBlocks)
  }

  newBlocks(slot: number, path: readonly string[]): number {
    const blocks = this.#blocks(slot)
    const firstNew = path.findIndex(block => !blocks.has(block))
    return firstNew < 0 ? 0 : path.length - firstNew
  }

  prefillTokens(slot: number): number {
    return this.#of(slot).reduce((sum, request) => sum + request.prefillTokens, 0)
  }

  activeRequests(slot: number): number {
    return this.#of(slot).length
  }

  expire(nowMs: number, idleMs: number): string[] {
    const ids = [...this.requests]
      .filter(([, request]) => nowMs - request.lastSeenMs >= idleMs)
      .map(([id]) => id)
    for (const id of ids) this.requests.delete(id)
    return ids
  }

  /** Different blocks, over all slots. */
  get distinctBlocks(): number {
    return new Set([...this.requests.values()].flatMap(request => request.path)).size
  }

  #of(slot: number): NaiveRequest[] {
    return [...this.requests.values()].filter(request => request.slot === slot)
  }

  #blocks(slot: number): Set<string> {
    return new Set(this.#of(slot).flatMap(request => request.path))
  }
}
