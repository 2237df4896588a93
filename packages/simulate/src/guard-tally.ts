/** Guard tally: what the guard of one simulated router did, over all of its decisions. */

import type { GuardReceipt, GuardStatus } from '@homing/placement'
import { SHADOW_NAMES } from '@homing/selection'
import type { GuardFigures } from './cell-types.ts'

export class GuardTally {
  readonly #regretSums = new Float64Array(SHADOW_NAMES.length)
  #decisions = 0
  #controls = 0
  #shrunk = 0
  #shrunkAfter: number | undefined

  add({ arm, phase, regretMs }: GuardReceipt): void {
    if (phase === 'shrunk') {
      this.#shrunkAfter ??= this.#decisions
      this.#shrunk++
    }
    this.#decisions++
    if (arm === 'control') this.#controls++
    for (const [s, name] of SHADOW_NAMES.entries()) this.#regretSums[s]! += regretMs[name]
  }

  figures({ shrinks, tests, calibration }: GuardStatus): GuardFigures {
    const decisions = Math.max(1, this.#decisions)
    return {
      ...(this.#shrunkAfter !== undefined && { shrunkAfter: this.#shrunkAfter }),
      shrinks,
      tests,
      controlShare: this.#controls / decisions,
      shrunkShare: this.#shrunk / decisions,
      regretMs: Array.from(this.#regretSums, sum => sum / decisions),
      calibration,
    }
  }
}
