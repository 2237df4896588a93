/**
 * The strict priorities of which requests wait or are asked about: which of them goes next.
 *
 * The highest goes first. A lower one starves while a request of it has waited `agingMs` and none of it was
 * placed for `passedOverMax` placements of higher ones. Then one of it goes before them, of the lowest that
 * starves.
 *
 * Cost   O(STRICT_PRIORITIES_MAX) per call, plus what strict-priority.ts states for a level.
 */

import type { ClassAccount, Entry, LevelOfEntry } from './entry.ts'
import { StrictPriorityLevel } from './strict-priority.ts'
import type { TenantTable } from './tenants.ts'

/** Different strict priorities at one time; a further one counts as the nearest below, or as 0. */
const STRICT_PRIORITIES_MAX = 64

export class StrictPriorities {
  readonly #classes: readonly ClassAccount[]
  readonly #tenants: TenantTable
  readonly #passedOverMax: number
  /** The highest first. */
  readonly #levels: StrictPriorityLevel[] = []

  constructor(classes: readonly ClassAccount[], tenants: TenantTable, passedOverMax: number) {
    this.#classes = classes
    this.#tenants = tenants
    this.#passedOverMax = passedOverMax
  }

  /** The highest first. */
  get levels(): readonly StrictPriorityLevel[] {
    return this.#levels
  }

  /** The level of a strict priority, which begins if there is none. */
  level(given: number): StrictPriorityLevel {
    let strictPriority = given
    if (this.#levels.length >= STRICT_PRIORITIES_MAX) {
      strictPriority = this.#levels.find(level => level.strictPriority <= given)?.strictPriority ?? 0
    }
    const at = this.#levels.findIndex(level => level.strictPriority <= strictPriority)
    if (at >= 0 && this.#levels[at]!.strictPriority === strictPriority) return this.#levels[at]!
    const level = new StrictPriorityLevel(strictPriority, this.#classes, this.#tenants)
    this.#levels.splice(at < 0 ? this.#levels.length : at, 0, level)
    return level
  }

  /** A request of the level is gone: the level ends with its last. */
  left(level: LevelOfEntry): void {
    const levels: readonly LevelOfEntry[] = this.#levels
    if (level.isEmpty) this.#levels.splice(levels.indexOf(level), 1)
  }

  canSend(nowMs: number): boolean {
    return this.#levels.some(level => level.canSend(nowMs))
  }

  /** Takes the next request out of its level; undefined: none can go. */
  take(nowMs: number): Entry | undefined {
    return this.#takeStarving(nowMs) ?? this.#takeHighest(nowMs)
  }

  /** A request of the level was placed. */
  placed(placed: LevelOfEntry): void {
    placed.passedOver = 0
    for (let i = this.#levels.length - 1; i >= 0 && this.#levels[i] !== placed; i--)
      this.#levels[i]!.passedOver++
  }

  #takeHighest(nowMs: number): Entry | undefined {
    for (const level of this.#levels) {
      const entry = level.take(nowMs)
      if (entry !== undefined) return entry
    }
    return undefined
  }

  #takeStarving(nowMs: number): Entry | undefined {
    for (let i = this.#levels.length - 1; i > 0; i--) {
      const level = this.#levels[i]!
      if (level.agedRequests === 0 || level.passedOver < this.#passedOverMax) continue
      const entry = level.take(nowMs)
      if (entry !== undefined) return entry
    }
    return undefined
  }
}
