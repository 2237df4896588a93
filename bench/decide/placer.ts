/**
 * Placer: places requests on the fleet of a fixture, as the router actor does, without actors and receipts.
 */

import assert from 'node:assert/strict'
import { type Random, seededRandom } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { BlockIndex } from '@homing/index'
import {
  type CandidateLoads,
  candidatesFor,
  OverlapLookup,
  type Overlaps,
  type PlacementSettings,
  place,
  type RoutingRequest,
  slotsOf,
} from '@homing/placement'
import { Audits, Selector } from '@homing/selection'
import { BLOCK_TOKENS, type Fixture, fleetOf } from './fixture.ts'

const NO_HASHES = new Int32Array(0)

export class Placer {
  readonly #fleet: Fleet
  readonly #load: CandidateLoads
  readonly #lookup: OverlapLookup
  readonly #selector: Selector
  readonly #audits = new Audits()
  readonly #random: Random = seededRandom(1)

  constructor({ workers, candidates }: Fixture, index: BlockIndex) {
    this.#fleet = fleetOf(workers)
    this.#load = { ...candidates, soughtBlocks: 0, engines: undefined, reportedShares: undefined, falls: 0 }
    this.#lookup = new OverlapLookup({
      indexMemories: [index.memory],
      workerSlotsMax: workers,
      weights: { host: 1, disk: 1 },
      guessesPending: false,
    })
    this.#selector = new Selector(workers)
  }

  /** Index of the winner, and the overlaps by worker. */
  place(request: RoutingRequest, settings: PlacementSettings): { winner: number; overlaps: Overlaps } {
    const found = candidatesFor({
      fleet: this.#fleet,
      request,
      settings,
      questions: 0,
      affinity: undefined,
      nowMs: 0,
      mayWait: false,
    })
    assert.ok('candidates' in found)
    const overlaps = this.#lookup.lookUp(request, found.candidates, this.#audits)
    const placed = place(
      {
        fleet: this.#fleet,
        request,
        found,
        workerSlots: slotsOf(found.candidates),
        overlaps,
        load: this.#load,
        heldBlocks: undefined,
        otherLoads: undefined,
        roomRules: undefined,
        isWaiting: false,
        isReal: true,
      },
      settings,
      { selector: this.#selector, guard: undefined, random: this.#random, turn: 0 },
    )
    assert.ok('winner' in placed)
    return { winner: placed.choice.winner, overlaps }
  }
}

/** A request for any worker. `local`: its block hashes, of so many blocks. */
export function requestOf(local: Int32Array, count: number, promptTokens: number): RoutingRequest {
  return {
    requestId: '',
    model: 'm',
    promptTokens,
    blockSizeTokens: BLOCK_TOKENS,
    localHashes: local.subarray(0, 2 * count),
    sequenceHashes: NO_HASHES,
    unknownPromptReason: undefined,
    textBlocksReason: undefined,
    override: {},
    pinnedInstanceId: undefined,
    pinnedRank: undefined,
    excludedWorkers: [],
  }
}
