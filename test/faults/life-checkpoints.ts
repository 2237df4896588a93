/**
 * Life checkpoints: checkpoints of an observer, in memory; a write takes its time.
 *
 * Owns   the files, and with each what its observer knew when the writing began.
 */

import type { CheckpointStore } from '@homing/actors/listener'
import type { SimulatedClock } from '@homing/base'
import { decodeCheckpoint } from '../../actors/listener/src/checkpoint.ts'
import type { Signs, TakenOver } from './life-signs.ts'

interface StoredCheckpoint {
  readonly bytes: Uint8Array
  /** When its writing began. */
  readonly moment: number
  readonly takenOver: TakenOver
  /** Prompts sent with a salt: their blocks stored since then count for no worker. */
  readonly salted: ReadonlySet<string>
}

/** The state when a checkpoint is written. */
interface Present {
  readonly moment: number
  readonly process: number
  readonly signs: Signs
  readonly salted: Iterable<string>
}

/** Checkpoints in memory; a write takes its time. */
export class SlowStore implements CheckpointStore {
  readonly #clock: SimulatedClock
  readonly #writeMs: number
  readonly #present: () => Present
  readonly #files = new Map<string, StoredCheckpoint>()
  /** The checkpoint last read of each source. */
  readonly #read = new Map<string, StoredCheckpoint>()

  constructor(clock: SimulatedClock, writeMs: number, present: () => Present) {
    this.#clock = clock
    this.#writeMs = writeMs
    this.#present = present
  }

  lastRead(source: string): StoredCheckpoint | undefined {
    return this.#read.get(source)
  }

  async read(_directory: string, source: string): Promise<Uint8Array | undefined> {
    const file = this.#files.get(source)
    if (file === undefined) this.#read.delete(source)
    else this.#read.set(source, file)
    return file?.bytes
  }

  async write(
    _directory: string,
    source: string,
    pieces: readonly Uint8Array[],
    isWanted: () => boolean,
  ): Promise<void> {
    const { moment, process, signs, salted } = this.#present()
    const bytes = Buffer.concat(pieces)
    const takenOver = signs.takenOver(process, () => {
      const { nextSequence, fingerprints } = decodeCheckpoint(bytes).point
      return nextSequence - fingerprints.length
    })
    const file = { bytes, moment, takenOver, salted: new Set(salted) }
    if (this.#writeMs > 0) await new Promise<void>(resolve => void this.#clock.after(this.#writeMs, resolve))
    if (isWanted()) this.#files.set(source, file)
  }

  async touch(): Promise<void> {}

  async remove(_directory: string, source: string): Promise<void> {
    this.#files.delete(source)
  }
}
