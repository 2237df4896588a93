/**
 * Random histories of workers that share pools of memory: whatever happened, no block counts as reachable
 * that is not. The truth is kept apart from events: what is in each pool, and for whom.
 *
 *   six workers on two shards: stores, removals, transitions, clears; one that cannot be heard, is heard
 *   again, alive or in a new life, leaves, comes back; its events again from a snapshot; a router that starts
 *   again, with checkpoints or snapshots; evictions are told across shards, as the listener does
 *
 * HOMING_SEED repeats a run; HOMING_LABEL_HISTORIES is how many there are.
 */

import assert from 'node:assert/strict'
import process from 'node:process'
import { BlockIndex, BlockLabels, LabelReader, layeredOptions } from '@homing/index'
import type { KvEvent, KvExpert, KvPoolPlace } from '@homing/protocol'
import { HeldBlocks } from '@homing/publisher'
import fc from 'fast-check'
import t from 'tap'
import { EventApplier } from '../src/event-applier.ts'
import { LayerSlots } from '../src/layer-slots.ts'
import {
  BLOCK_TOKENS,
  type CacheStep,
  type Chain,
  cacheSteps,
  chainsOf,
  engineHash,
  idsOf,
  LabelledCache,
  nameOf,
  sequenceHash,
  throughTheWire,
} from './labelled-cache.ts'

const HISTORIES = Number(process.env['HOMING_LABEL_HISTORIES'] ?? 2000)
const SEED = Number(process.env['HOMING_SEED'] ?? Math.floor(Math.random() * 2 ** 31))
const SHARDS = 2
const WORKERS = 6
const BLOCKS_MAX = 2
const CHAINS = chainsOf(BLOCKS_MAX)
const SLOTS = 8
/** With room for all members. */
const LABEL_BYTES = 1 << 19

type Step =
  | { readonly kind: 'act'; readonly worker: number; readonly step: CacheStep }
  | { readonly kind: 'part' | 'leave'; readonly worker: number }
  | { readonly kind: 'heard'; readonly worker: number; readonly isNewLife: boolean }
  | { readonly kind: 'restart'; readonly hasCheckpoints: boolean }

const worker = fc.nat(WORKERS - 1)
const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    {
      weight: 20,
      arbitrary: fc.record({ kind: fc.constant('act' as const), worker, step: cacheSteps(BLOCKS_MAX) }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('part', 'leave'), worker }) },
    {
      weight: 3,
      arbitrary: fc.record({ kind: fc.constant('heard' as const), worker, isNewLife: fc.boolean() }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant('restart' as const), hasCheckpoints: fc.boolean() }),
    },
  ),
  { maxLength: 60, size: 'max' },
)

/** A block that a worker which has left had in a pool, for others. */
interface Left {
  readonly name: string
  readonly place: KvPoolPlace
  /** False: the router has started again since, and cannot know of it. */
  isKnown: boolean
}

class LabelledWorker {
  readonly slot: number
  cache = new LabelledCache()
  published = new HeldBlocks({ bytesMax: 2 ** 24 })
  state: 'heard' | 'parted' | 'left' = 'left'
  /** Blocks that are somewhere, and that the router was not told of. */
  readonly untold = new Set<string>()

  constructor(slot: number) {
    this.slot = slot
  }

  get shard(): number {
    return this.slot % SHARDS
  }

  take(step: CacheStep): readonly KvEvent[] {
    const events = throughTheWire(this.cache.take(step))
    for (const event of events) this.published.apply(event)
    for (const chain of CHAINS) if (!this.cache.isSomewhere(chain)) this.untold.delete(nameOf(chain))
    return events
  }

  begin(): void {
    this.cache = new LabelledCache()
    this.published = new HeldBlocks({ bytesMax: 2 ** 24 })
    this.untold.clear()
  }

  /** All that its publisher says again. */
  snapshot(): readonly KvEvent[] {
    const frozen = this.published.freeze()
    const events = throughTheWire([...frozen.runs(0, frozen.size, 3)])
    frozen.release()
    this.untold.clear()
    for (const chain of CHAINS)
      if (this.cache.isSomewhere(chain) && !this.cache.isPlaced(chain)) this.untold.add(nameOf(chain))
    return events
  }

  /** What it has in a pool. */
  pooled(chain: Chain): KvPoolPlace | undefined {
    const place = this.cache.places.get(nameOf(chain))
    return place?.state === 'cxl_pooled' ? place : undefined
  }
}

class Fleet {
  readonly #workers = Array.from({ length: WORKERS }, (_, slot) => new LabelledWorker(slot))
  #left: Left[] = []
  #appliers: EventApplier[] = []
  #reader = new LabelReader()
  readonly #labels = new BlockLabels()
  /** All that was ever said of a block. */
  readonly #said = new Map<string, KvExpert[]>()
  /** By shard and block: an expert was said, and some worker that is heard there has held the block since. */
  #kept = new Set<string>()

  constructor() {
    this.#start()
  }

  take(step: Step): void {
    if (step.kind === 'restart') {
      this.#restart(step.hasCheckpoints)
      // The snapshot of a worker has what that one said alone.
      if (!step.hasCheckpoints) this.#kept.clear()
      return
    }
    const one = this.#workers[step.worker]!
    // A history that begins anew, a block that goes and comes back: meanwhile others must hold it.
    if (step.kind === 'heard' || (step.kind === 'act' && step.step.kind === 'again'))
      this.#forget(other => other !== one)
    this.#takeOf(one, step)
    this.#forget(() => true)
  }

  /** What none of these workers holds is not kept. */
  #forget(holds: (worker: LabelledWorker) => boolean): void {
    for (const key of this.#kept) {
      const [shard, name] = key.split('/') as [string, string]
      const isHeld = this.#workers.some(
        one => one.shard === Number(shard) && one.state === 'heard' && holds(one) && one.cache.held.has(name),
      )
      if (!isHeld) this.#kept.delete(key)
    }
  }

  #takeOf(one: LabelledWorker, step: Exclude<Step, { readonly kind: 'restart' }>): void {
    const applier = this.#applierOf(one)
    switch (step.kind) {
      case 'act':
        if (one.state === 'parted') break
        if (one.state === 'left') this.#join(one)
        this.#act(one, step.step)
        break
      case 'part':
        if (one.state !== 'heard') break
        applier.open(one.slot, true)
        one.state = 'parted'
        break
      case 'heard':
        if (one.state === 'left' || step.isNewLife) this.#join(one)
        else this.#hear(one)
        break
      case 'leave': {
        if (one.state === 'left') break
        for (const chain of CHAINS) {
          const place = one.pooled(chain)
          const name = nameOf(chain)
          if (place === undefined || place.accessibleWorkers.length === 0) continue
          this.#left.push({ name, place, isKnown: !one.untold.has(name) })
        }
        applier.release(one.slot)
        one.begin()
        one.state = 'left'
      }
    }
  }

  check(): void {
    for (const chain of CHAINS) this.#check(chain)
  }

  #check(chain: Chain): void {
    const name = nameOf(chain)
    const labels = this.#labels
    this.#reader.read(...sequenceHash(chain), labels)
    const owners = labels.owners.filter((_, i) => i % 2 === 1)
    const ids = this.#idsIn(labels)
    const left = this.#left.filter(one => one.name === name)
    const truth = new Set(left.flatMap(({ place }) => idsOf(place)))
    for (const one of this.#workers) {
      const place = one.pooled(chain)
      if (place !== undefined) for (const id of idsOf(place)) truth.add(id)
    }
    // No more than there is.
    for (const id of ids) assert.ok(truth.has(id), `${name}: ${id} does not reach it`)
    for (const owner of owners) {
      const isThere = owner === -1 ? left.length > 0 : this.#workers[owner]!.pooled(chain) !== undefined
      assert.ok(isThere, `${name}: ${owner} does not have it in a pool`)
    }
    // And no less, as far as the router was told.
    if (left.some(({ isKnown }) => isKnown)) assert.ok(owners.includes(-1), `${name}: one that has left`)
    for (const one of this.#workers) {
      if (one.untold.has(name)) continue
      const place = one.pooled(chain)
      const isOwner = place !== undefined && (one.state === 'heard' || place.accessibleWorkers.length > 0)
      assert.equal(owners.includes(one.slot), isOwner, `${name}: of ${one.slot}`)
      if (isOwner) for (const id of idsOf(place)) assert.ok(ids.has(id), `${name}: ${id} reaches it`)
      if (one.state === 'heard') this.#checkRecord(one, chain)
    }
    const said = this.#said.get(name) ?? []
    if (labels.moe !== undefined) assert.ok(said.some(each => isDeep(each, labels.moe!)))
    const isKnown = this.#workers.some(
      one => one.state === 'heard' && !one.untold.has(name) && one.cache.experts.has(name),
    )
    const isKept = Array.from({ length: SHARDS }, (_, shard) => this.#kept.has(`${shard}/${name}`))
    if (isKnown || isKept.includes(true)) assert.ok(labels.moe !== undefined, `${name}: its expert`)
  }

  /** The events of a worker, or its snapshot, have said just what is true. */
  #checkRecord(one: LabelledWorker, chain: Chain): void {
    const label = this.#applierOf(one).labels.of(one.slot, ...engineHash(chain), new Map())
    if (!one.cache.isSomewhere(chain)) {
      assert.ok(label?.place === undefined || label.place.state === 'evicted')
      return
    }
    const place = one.cache.places.get(nameOf(chain))
    const told = label?.place
    assert.deepEqual(
      { ...told, accessibleWorkers: told?.accessibleWorkers.length },
      { ...place, accessibleWorkers: place?.accessibleWorkers.length },
      `${nameOf(chain)} of ${one.slot}`,
    )
    const said = this.#said.get(nameOf(chain)) ?? []
    const moe = label?.moe
    if (moe !== undefined) assert.ok(said.some(each => isDeep(each, moe) && each.members === moe.members))
  }

  #act(one: LabelledWorker, step: CacheStep): void {
    if ((step.kind === 'store' || step.kind === 'pool') && step.expert !== undefined) {
      for (let length = 1; length <= step.chain.length; length++) {
        const name = nameOf(step.chain.slice(0, length))
        this.#said.set(name, [...(this.#said.get(name) ?? []), step.expert])
      }
    }
    const events = one.take(step)
    if (step.kind === 'store' && step.expert !== undefined)
      this.#kept.add(`${one.shard}/${nameOf(step.chain)}`)
    if (step.kind === 'move' && step.place.state === 'evicted') this.#evict(one, step)
    for (const event of events) {
      if (event.kind !== 'transition' || event.state !== 'evicted') continue
      for (const applier of this.#appliers)
        if (applier !== this.#applierOf(one)) applier.labels.evictedElsewhere(event)
    }
    this.#applierOf(one).apply(one.slot, BLOCK_TOKENS, events)
  }

  /** The word of a worker that is heard is about the pool: it holds for those that cannot say so. */
  #evict(one: LabelledWorker, { chain, place }: Extract<CacheStep, { readonly kind: 'move' }>): void {
    const name = nameOf(chain)
    this.#left = this.#left.filter(left => left.name !== name || !isSamePool(place, left.place))
    for (const other of this.#workers) {
      const pooled = other.pooled(chain)
      if (other === one || other.state !== 'parted' || pooled === undefined) continue
      if (isSamePool(place, pooled)) other.take({ kind: 'move', chain, place })
    }
  }

  /** In a new life, with nothing in its part of any pool. */
  #join(one: LabelledWorker): void {
    this.#applierOf(one).open(one.slot)
    one.begin()
    one.state = 'heard'
  }

  /** Its history again, from its publisher. */
  #hear(one: LabelledWorker): void {
    this.#applierOf(one).open(one.slot)
    this.#applierOf(one).apply(one.slot, BLOCK_TOKENS, one.snapshot())
    one.state = 'heard'
  }

  #restart(hasCheckpoints: boolean): void {
    const before = this.#appliers
    this.#start()
    for (const left of this.#left) left.isKnown = false
    for (const one of this.#workers) {
      if (one.state === 'heard') {
        const image = hasCheckpoints ? before[one.shard]!.image(one.slot) : undefined
        if (image === undefined) this.#hear(one)
        else {
          this.#applierOf(one).open(one.slot)
          this.#applierOf(one).load(one.slot, image)
        }
      } else if (one.state === 'parted') {
        this.#applierOf(one).open(one.slot)
        for (const chain of CHAINS) if (one.cache.isSomewhere(chain)) one.untold.add(nameOf(chain))
      }
    }
  }

  #start(): void {
    this.#reader = new LabelReader()
    this.#appliers = Array.from({ length: SHARDS }, (_, shard) => {
      const index = BlockIndex.create(layeredOptions(1 << 20, SLOTS))
      const applier = new EventApplier(index, new LayerSlots(SLOTS), LABEL_BYTES, true)
      this.#reader.setShard(shard, applier.labels.memory)
      return applier
    })
  }

  #applierOf({ shard }: LabelledWorker): EventApplier {
    return this.#appliers[shard]!
  }

  #idsIn({ workerSets }: BlockLabels): Set<number> {
    const ids = new Set<number>()
    for (let at = 0; at < workerSets.length; at += 3) {
      const [shard, set, life] = workerSets.slice(at, at + 3) as [number, number, number]
      for (const [i, word] of this.#reader.workerIdsOf(shard, set, life)!.entries())
        if (i % 2 === 0) ids.add(word)
    }
    return ids
  }
}

/** An eviction without a pool is for all of them. */
function isSamePool(told: KvPoolPlace, known: KvPoolPlace): boolean {
  return told.poolId === undefined || known.poolId === undefined || told.poolId === known.poolId
}

function isDeep(one: KvExpert, other: KvExpert): boolean {
  return (
    one.layerId === other.layerId && one.expertId === other.expertId && one.expertGroup === other.expertGroup
  )
}

t.test(`in ${HISTORIES} histories no block counts as reachable that is not`, async t => {
  t.comment(`HOMING_SEED=${SEED}`)
  const holds = fc.property(steps, history => {
    const fleet = new Fleet()
    for (const step of history) {
      fleet.take(step)
      fleet.check()
    }
  })
  t.doesNotThrow(() => fc.assert(holds, { seed: SEED, numRuns: HISTORIES }), `HOMING_SEED=${SEED}`)
})
