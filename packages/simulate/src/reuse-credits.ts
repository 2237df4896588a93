/**
 * Reuse credits: what a cached block of each worker counts for, by how well the predictions of one simulated
 * router came true there.
 *
 * Owns   its Audits, and the credit of each worker.
 */

import type { Trust } from '@homing/index'
import { Audits, type AuditVerdict, creditFactor } from '@homing/selection'
import type { CellSpec } from './cell-types.ts'
import { trustOf } from './sim-fleet.ts'
import type { SimRequest } from './sim-request.ts'

export class ReuseCredits {
  readonly #audits = new Audits()
  readonly #trust: Trust
  readonly #blockTokens: number
  readonly #verdict: ((worker: number, verdict: AuditVerdict) => void) | undefined
  /** By worker. */
  readonly #credits: Float64Array
  /** What a block counts for before anything was measured. */
  readonly #creditAtFirst: number

  /**
   * `measures` false: a block counts in full. `verdict`: called when the answers of a worker contradict what
   * its events say, or agree with it.
   */
  constructor(
    spec: CellSpec,
    measures: boolean,
    verdict: ((worker: number, verdict: AuditVerdict) => void) | undefined,
  ) {
    this.#trust = trustOf(spec.view)
    this.#blockTokens = spec.blockTokens
    this.#verdict = verdict
    this.#creditAtFirst = measures ? creditFactor(this.#trust, 1, 0) : 1
    this.#credits = new Float64Array(spec.workers).fill(this.#creditAtFirst)
  }

  /** Of each of the `heldBlocks` blocks of a prompt that the worker holds. */
  factor(worker: number, heldBlocks: number): number {
    // Without an overlap and without exact trust nothing was measured: the first credit counts.
    const isMeasured = heldBlocks > 0 || this.#trust === 'exact'
    return isMeasured ? this.#credits[worker]! : this.#creditAtFirst
  }

  /**
   * Compares the predicted overlap with the reuse that the engine reported. False: they cannot be compared.
   */
  audit(request: SimRequest): boolean {
    const trust = this.#trust
    const { worker, predictedTokens } = request
    if (trust === 'none' || request.leg === 'decode' || request.hints?.cacheUse !== undefined) return false
    const isGuess = trust === 'approximate'
    const prediction = {
      worker: String(worker),
      workerSlot: worker,
      epoch: 0,
      predictedTokens,
      guessedTokens: isGuess ? predictedTokens : 0,
      pooledTokens: 0,
      trust,
      blockSizeTokens: this.#blockTokens,
    }
    const { verdict } = this.#audits.add(prediction, saidTokens(request))
    if (verdict !== undefined) this.#verdict?.(worker, verdict)
    const sample = isGuess ? this.#audits.guessPrecision(worker) : this.#audits.precision(worker)
    this.#credits[worker] = creditFactor(trust, sample.precision, sample.requests)
    return true
  }
}

/** Cached tokens in the usage of an answer: blocks that were read out of a pool are among them. */
export function saidTokens({ recovers, reusedTokens, skippedTokens }: SimRequest): number {
  return recovers === undefined ? reusedTokens : skippedTokens
}
