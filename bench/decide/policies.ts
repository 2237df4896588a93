/**
 * The part `policies` of the bench: a decision by each policy and in each mode, with its lookup in an index
 * of many blocks.
 *
 *   index    `blocks` memberships: PROMPTS prompts, of each of which worker i holds its first (i mod 32) · 64
 *            tokens, and chains of 128 blocks that no prompt begins with
 *   arms     every policy at temperature 0 and 0.7, every other mode, linear with a decaying credit, auto
 *            alone and with all that its guard does for a decision and its first token; they take turns every
 *            SLICE_MS, each decision with the next prompt
 *
 * A ratio is the median over rounds of an arm's time ÷ that of linear at the same temperature in the same
 * round.
 */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import { chainSequence, DEFAULT_SEED, hashBlocks } from '@homing/blocks'
import { BlockIndex, IndexReader, OverlapCounts } from '@homing/index'
import {
  EngineBook,
  type EngineProjection,
  FIGURE_OFFSET,
  FIGURES_PER_SLOT,
  STEP_TOKENS_DEFAULT,
} from '@homing/load'
import { RoutingGuard } from '@homing/placement'
import {
  type Candidates,
  FIXED_POLICY_NAMES,
  GUARD_SHARE_DEFAULT,
  ROUTER_MODES,
  type SelectionSettings,
  Selector,
  selectionSettings,
} from '@homing/selection'
import type { Measure, Measures } from '../harness.ts'
import { mixInto } from '../index/splitmix.ts'
import { median } from '../statistics.ts'
import { BLOCK_TOKENS, type Fixture, fixtureOf, promptOf, SEL_PROMPT_TOKENS } from './fixture.ts'
import { naiveCosts, naiveWinners } from './naive.ts'
import { requestOf } from './placer.ts'

const PROMPTS = 64
const CHAIN_BLOCKS = 128
const BYTES_PER_BLOCK = 40
/** KV tokens that a worker holds. */
const KV_TOKENS = 400_000
const SLICE_MS = 2
const TEMPERATURES = [0, 0.7]

export interface PolicyParameters {
  readonly fleets: readonly number[]
  readonly blocks: number
  readonly rounds: number
}

interface Arm {
  readonly name: string
  /** Name of the arm that it is compared with. */
  readonly basis: string
  readonly settings: SelectionSettings
  /** Also what its guard does for a decision. */
  readonly isGuarded?: boolean
  readonly times: number[]
}

export function measurePolicies({ fleets, blocks, rounds }: PolicyParameters): Measures {
  const measures: Record<string, Measure> = {}
  for (const workers of fleets) {
    const decide = new Decisions(fixtureOf(workers, SEL_PROMPT_TOKENS), blocks)
    const arms = armsOf()
    // What auto learns has no definition in plain arrays; its tests check it.
    for (const { settings } of arms) if (settings.policy !== 'auto') decide.check(settings)
    for (const arm of arms) decide.nanosecondsEach(arm, 20 * SLICE_MS)
    for (let round = 0; round < rounds; round++) {
      for (const arm of arms) arm.times.push(decide.nanosecondsEach(arm, SLICE_MS))
    }
    for (const { name, times } of arms)
      measures[`${name}, W=${workers}`] = { value: median(times), unit: 'ns' }
    for (const { name, basis, times } of arms) {
      if (name === basis) continue
      const linear = arms.find(arm => arm.name === basis)!.times
      const ratio = median(times.map((time, round) => time / linear[round]!))
      measures[`${name} ÷ linear, W=${workers}`] = { value: ratio, unit: '×' }
    }
  }
  return measures
}

function armsOf(): Arm[] {
  const policies = TEMPERATURES.flatMap(temperature =>
    FIXED_POLICY_NAMES.map(policy => ({
      name: `${policy} T=${temperature}`,
      basis: `linear T=${temperature}`,
      settings: selectionSettings({ policy, temperature }),
      times: [],
    })),
  )
  const modes = ROUTER_MODES.filter(mode => mode !== 'kv').map(mode => ({
    name: mode,
    basis: 'linear T=0',
    settings: selectionSettings({ mode }),
    times: [],
  }))
  const decay = {
    name: 'linear with a decaying credit',
    basis: 'linear T=0',
    settings: selectionSettings({ overlapCredit: 0.9, creditDecay: 0.1 }),
    times: [],
  }
  const auto = [false, true].map(isGuarded => ({
    name: isGuarded ? 'auto with its guard' : 'auto',
    basis: 'linear T=0',
    settings: selectionSettings({ policy: 'auto' }),
    isGuarded,
    times: [],
  }))
  return [...policies, ...modes, decay, ...auto]
}

/** Decisions over a fleet, each about the next prompt. */
class Decisions {
  readonly #fixture: Fixture
  readonly #prompts: readonly { readonly local: Int32Array; readonly count: number }[]
  readonly #reader: IndexReader
  readonly #scores: OverlapCounts
  readonly #selector: Selector
  readonly #random = seededRandom(1)
  /** All that the router tells every policy; it makes this for each decision, whatever the policy. */
  readonly #inputOfAuto: Candidates
  readonly #guard = new RoutingGuard({ share: GUARD_SHARE_DEFAULT }, this.#random)
  #next = 0

  constructor(fixture: Fixture, blocks: number) {
    const { workers, overlapBlocks } = fixture
    const index = BlockIndex.create({
      capacityBytes: Math.max(64 << 20, blocks * BYTES_PER_BLOCK),
      workerSlotsMax: workers,
    })
    const prompts = Array.from({ length: PROMPTS }, (_, seed) =>
      hashBlocks(promptOf(SEL_PROMPT_TOKENS, seed), BLOCK_TOKENS, DEFAULT_SEED),
    )
    let held = 0
    for (const { local, sequence } of prompts) {
      for (const [worker, count] of overlapBlocks.entries()) {
        if (count > 0) assert.equal(index.store(worker, undefined, sequence, local, count), 'stored')
        held += count
      }
    }
    for (let chain = 0; held < blocks; chain++, held += CHAIN_BLOCKS) {
      const local = ballast(chain)
      const sequence = chainSequence(local, CHAIN_BLOCKS)
      assert.equal(index.store(chain % workers, undefined, sequence, local, CHAIN_BLOCKS), 'stored')
    }
    this.#fixture = fixture
    this.#prompts = prompts
    this.#reader = new IndexReader([index.memory])
    this.#inputOfAuto = {
      ...fixture.candidates,
      engines: enginesOf(fixture),
      heldBlocksOf: i => this.#reader.blocksHeld(0, i),
      kvCapacityTokens: new Float64Array(workers).fill(KV_TOKENS),
      soughtBlocks: SEL_PROMPT_TOKENS / BLOCK_TOKENS,
      stepTokens: new Float64Array(workers).fill(STEP_TOKENS_DEFAULT),
    }
    this.#scores = new OverlapCounts(workers)
    this.#selector = new Selector(workers)
  }

  decide(settings: SelectionSettings): number {
    const { candidates } = this.#fixture
    const { local, count } = this.#prompts[this.#next++ % PROMPTS]!
    this.#reader.overlap(local, count, this.#scores)
    candidates.overlapBlocks.fill(0)
    for (let i = 0; i < this.#scores.length; i++) {
      candidates.overlapBlocks[this.#scores.workerSlots[i]!] = this.#scores.blocks[i]!
    }
    return this.#selector.choose(candidates, REQUEST, settings, this.#random, this.#next).winner
  }

  /** As the router does it, its first token included. */
  decideByAuto(settings: SelectionSettings, isGuarded: boolean): number {
    const { candidates } = this.#fixture
    const { local, count } = this.#prompts[this.#next++ % PROMPTS]!
    this.#reader.overlap(local, count, this.#scores)
    candidates.overlapBlocks.fill(0)
    for (let i = 0; i < this.#scores.length; i++) {
      candidates.overlapBlocks[this.#scores.workerSlots[i]!] = this.#scores.blocks[i]!
    }
    const input = this.#inputOfAuto
    const choice = this.#selector.choose(input, REQUEST, settings, this.#random, this.#next)
    if (!isGuarded) return choice.winner
    const guard = this.#guard
    const receipt = guard.consider(ROUTING, settings, input, choice, this.#selector, true)!
    const decision = guard.decided(receipt, SEL_PROMPT_TOKENS, this.#next)
    guard.firstToken(decision, receipt.predictedFirstTokenMs, this.#next)
    return choice.winner
  }

  /** One decision about each prompt, against the definition. */
  check(settings: SelectionSettings): void {
    const { candidates, overlapBlocks, workers } = this.#fixture
    for (let i = 0; i < PROMPTS; i++) {
      const winner = this.decide(settings)
      assert.deepEqual(candidates.overlapBlocks, overlapBlocks, 'overlaps of the index')
      const { terms } = this.#selector.choose(candidates, REQUEST, settings, this.#random)
      const costs = naiveCosts(settings, candidates, REQUEST)
      for (let worker = 0; worker < workers; worker++) {
        assert.ok(
          Math.abs(terms.cost[worker]! - costs[worker]!) <= 1e-9 * costs[worker]!,
          `cost of ${worker}`,
        )
      }
      assert.ok(naiveWinners(settings, candidates, costs).includes(winner), `${winner} may win`)
    }
  }

  /**
   * CPU time of this thread for one decision: a processor that is shared with others takes turns longer than
   * a slice.
   */
  nanosecondsEach({ settings, isGuarded }: Arm, forMs: number): number {
    const from = process.threadCpuUsage()
    let calls = 0
    let elapsedUs = 0
    while (elapsedUs < forMs * 1000) {
      for (let i = 0; i < 16; i++) {
        if (settings.policy === 'auto') this.decideByAuto(settings, isGuarded === true)
        else this.decide(settings)
      }
      calls += 16
      const { user, system } = process.threadCpuUsage(from)
      elapsedUs = user + system
    }
    return (elapsedUs * 1000) / calls
  }
}

/** As the guard sees it: free to be tried. */
const ROUTING = requestOf(new Int32Array(0), 0, SEL_PROMPT_TOKENS)
const REQUEST = { promptTokens: SEL_PROMPT_TOKENS, blockSizeTokens: BLOCK_TOKENS }

/**
 * What an engine book says of workers with so many requests each, half of them decoding; every other cache is
 * full.
 */
function enginesOf({ workers, candidates: { activeRequests, workerSlots } }: Fixture): EngineProjection {
  const book = new EngineBook({ workerSlotsMax: workers })
  for (let worker = 0; worker < workers; worker++) {
    for (let i = 0; i < activeRequests[worker]!; i++) {
      const id = `${worker} ${i}`
      book.sent(id, worker, { promptTokens: 16 * worker, newTokens: 16 * worker, nowMs: i })
      if (i % 2 === 0) book.firstToken(id, i + 1)
    }
  }
  const engines = book.project(workerSlots, 100)
  for (let worker = 0; worker < workers; worker += 2)
    engines.figures[worker * FIGURES_PER_SLOT + FIGURE_OFFSET.receivedTokens] = KV_TOKENS
  return engines
}

function ballast(chain: number): Int32Array {
  const local = new Int32Array(2 * CHAIN_BLOCKS)
  for (let i = 0; i < CHAIN_BLOCKS; i++) mixInto(chain * CHAIN_BLOCKS + i, local, 2 * i)
  return local
}
