/**
 * Foreign blocks: what other routers have active on each worker, as they tell it, in the load of this one.
 */

import type { ActiveLoad } from '@homing/load'

export class ForeignBlocks {
  readonly #load: ActiveLoad
  /** By worker, of each router. */
  readonly #byRouter = new Map<number, Int32Array>()

  constructor(load: ActiveLoad) {
    this.#load = load
  }

  set(router: number, worker: number, activeBlocks: number): void {
    let own = this.#byRouter.get(router)
    if (own === undefined) {
      own = new Int32Array(this.#load.workerSlotsMax)
      this.#byRouter.set(router, own)
    }
    own[worker] = activeBlocks
    let sum = 0
    for (const blocks of this.#byRouter.values()) sum += blocks[worker]!
    this.#load.setForeignBlocks(worker, sum)
  }

  /** The worker has died. */
  clear(worker: number): void {
    for (const blocks of this.#byRouter.values()) blocks[worker] = 0
    this.#load.setForeignBlocks(worker, 0)
  }
}
