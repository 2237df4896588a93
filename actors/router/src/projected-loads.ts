/**
 * Projected loads: what the tracker says of the load of worker keys, for one request.
 *
 * Owns   nothing: the load is the tracker's, and each question is asked anew.
 */

import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import {
  type Candidate,
  type CandidateLoads,
  otherRanks,
  type RoutingRequest,
  type Situation,
  thresholdsFor,
} from '@homing/placement'
import type { RouterArgs } from './router-args.ts'

const NO_HASHES = new Int32Array(0)

export class ProjectedLoads {
  readonly #args: Pick<RouterArgs, 'tracker' | 'trackerMsMax'>

  constructor(args: Pick<RouterArgs, 'tracker' | 'trackerMsMax'>) {
    this.#args = args
  }

  /** `wantsEngines`: with the work that is queued at the engines. An error: the tracker did not answer. */
  async of(
    fleet: Fleet,
    workerSlots: Int32Array,
    sequenceHashes: Int32Array,
    request: RoutingRequest,
    wantsEngines: boolean,
  ): Promise<CandidateLoads | ErrorRecord> {
    const { tracking } = request
    try {
      return await this.#args.tracker.ask(
        {
          type: 'project',
          workerSlots,
          sequenceHashes,
          tracking,
          wantsEngines,
          wantsReported: thresholdsFor(fleet, request)?.decodeBlocksFraction !== undefined,
        },
        { timeout: this.#args.trackerMsMax },
      )
    } catch (thrown) {
      return toErrorRecord(thrown)
    }
  }

  /** The loads of ranks that are no candidates, if a busy threshold needs them. */
  async ofOthers(
    fleet: Fleet,
    candidates: readonly Candidate[],
    request: RoutingRequest,
  ): Promise<Situation['otherLoads'] | ErrorRecord> {
    if (thresholdsFor(fleet, request) === undefined) return undefined
    const workerSlots = otherRanks(candidates)
    if (workerSlots.length === 0) return undefined
    // No engine projections are asked for here: the engine book computes its busy share from them, and only
    // candidates may count.
    const load = await this.of(fleet, workerSlots, NO_HASHES, request, false)
    return 'code' in load ? load : { workerSlots, load }
  }
}
