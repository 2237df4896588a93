/**
 * Learned lives: hands over what was learned of engines from one life of the tracker to the next, by worker
 * key.
 *
 *   image ──▶ keeper, or file ──▶ offer ──fleet with the same life of the engine──▶ LearnedValues
 *
 * Owns   what was offered and not taken over yet: at most `workersMax` workers. It stays until its worker is
 *        in the fleet and shows whether it is the same life of the engine; images have it meanwhile.
 *
 * Invariants
 *   L1  What was learned counts for the engine process that it was learned of, and for no other. From an
 *       earlier life of the tracker: the same `joinedMs` and `promptsEpoch`, and no other start of the
 *       process. From a file: both sides know the start of the process, and it is the same.
 *   L2  What was learned since is never replaced.
 *   L3  What the fleet learned counts from the first worker that is known again, or at once from an earlier
 *       life of the tracker.
 */

import { isOtherProcessStart, type WorkerRecord } from '@homing/fleet'
import type { LearnedValues } from '@homing/load'
import type { EngineLife, LearnedImage, LearnedWorker } from './learned-image.ts'

export type LearnedSource = 'tracker' | 'file'

export class LearnedLives {
  readonly #learned: LearnedValues
  readonly #workersMax: number
  /** By worker key: those in the fleet. */
  #present = new Map<string, EngineLife & { readonly workerSlot: number }>()
  /** By worker key. */
  readonly #offered = new Map<string, LearnedWorker>()
  #offeredFleet: LearnedImage['fleet'] | undefined
  #source: LearnedSource = 'tracker'

  constructor(learned: LearnedValues, workersMax: number) {
    this.#learned = learned
    this.#workersMax = workersMax
  }

  /** An image of an earlier life; call it before the first `takeFleet`. */
  offer({ fleet, workers }: LearnedImage, source: LearnedSource): void {
    this.#source = source
    this.#offeredFleet = fleet
    for (const worker of workers.slice(0, this.#workersMax)) this.#offered.set(worker.worker, worker)
  }

  /** Call it when the book has forgotten who left or restarted. The keys that were taken over. */
  takeFleet(workers: readonly WorkerRecord[], wallMs: number): readonly string[] {
    this.#present = new Map()
    const taken: string[] = []
    if (this.#source === 'tracker') this.#takeFleetImage(wallMs)
    for (const worker of workers) {
      const { joinedMs, promptsEpoch = 0, processStartSeconds, keys } = worker
      const life = { joinedMs, promptsEpoch, processStartSeconds }
      for (const { key, workerSlot } of keys) {
        this.#present.set(key, { ...life, workerSlot })
        const offered = this.#offered.get(key)
        if (offered === undefined) continue
        const isSame = this.#isSame(offered, worker)
        if (isSame === undefined) continue
        this.#offered.delete(key)
        if (!isSame) continue
        this.#takeFleetImage(wallMs)
        this.#learned.restoreWorker(workerSlot, offered.image, Math.max(0, wallMs - offered.takenMs))
        taken.push(key)
      }
    }
    return taken
  }

  /** What is known now, for the next life. */
  image(wallMs: number): LearnedImage {
    const workers: LearnedWorker[] = []
    for (const [worker, { workerSlot, ...life }] of this.#present) {
      const image = this.#learned.workerImage(workerSlot)
      if (image !== undefined) workers.push({ worker, ...life, takenMs: wallMs, image })
    }
    const known = new Set(workers.map(({ worker }) => worker))
    for (const waiting of this.#offered.values())
      if (workers.length < this.#workersMax && !known.has(waiting.worker)) workers.push(waiting)
    // An offer that no worker has taken over does not outlast what was learned since.
    const offered = this.#learned.settled === 0 ? this.#offeredFleet : undefined
    const fleet = offered ?? { takenMs: wallMs, image: this.#learned.fleetImage() }
    return { fleet, workers }
  }

  #takeFleetImage(wallMs: number): void {
    const offered = this.#offeredFleet
    this.#offeredFleet = undefined
    if (offered !== undefined)
      this.#learned.restoreFleet(offered.image, Math.max(0, wallMs - offered.takenMs))
  }

  /** Whether it is the same life of the engine; undefined: it is not known yet. */
  #isSame(offered: LearnedWorker, worker: WorkerRecord): boolean | undefined {
    const { joinedMs, promptsEpoch = 0, processStartSeconds, state } = worker
    const isOther = isOtherProcessStart(offered.processStartSeconds, processStartSeconds)
    if (this.#source === 'tracker')
      return joinedMs === offered.joinedMs && promptsEpoch === offered.promptsEpoch && !isOther
    if (isOther || offered.processStartSeconds === undefined) return false
    if (processStartSeconds !== undefined) return true
    return state === 'up' ? false : undefined
  }
}
