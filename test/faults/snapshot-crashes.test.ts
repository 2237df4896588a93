/**
 * A router that ends at any step of a snapshot pass, in a simulation: the next one, which starts alone after
 * all buffers are gone, has the index of the truth. HOMING_SIM_SEEDS sets how many seeds (26),
 * HOMING_SIM_SEED the first. Every step has its turn after 13 seeds.
 */

import { seededRandom } from '@homing/base'
import type { Frames } from '@homing/transport'
import t from 'tap'
import { ObservedFleet } from './observed-fleet.ts'

const FIRST = Number(process.env['HOMING_SIM_SEED'] ?? 1)
const COUNT = Number(
  process.env['HOMING_SIM_SEEDS'] ?? (process.env['HOMING_SIM_SEED'] === undefined ? 26 : 1),
)
/** The router's own broker, too: it keeps snapshots there. */
const BROKER = '127.0.0.1:4222'
/** Of a pass, in its order; it ends before each of them, and behind the last. */
const STEPS = [
  'fill',
  'lock',
  'named',
  'renew',
  'compare',
  'chunks',
  'upload',
  'switch',
  'drop',
  'purge',
  'tidy',
  'unlock',
  'behind all',
] as const
/** Before these, something is left that no entry names. */
const LEAVING: readonly string[] = ['upload', 'switch', 'drop']
const SNAPSHOT_MESSAGES = 20
/** The engine itself keeps next to nothing. */
const ENGINE = { blocks: 40, replayBatchesMax: 2, nats: [BROKER], durableKvEvents: true }
const WITHIN_MS = 60_000

/** The steps of the routers at the broker; from one on, nothing of the router gets there. */
class Steps {
  readonly seen = new Map<string, number>()
  readonly #observed: ObservedFleet
  #endsAt: string | undefined
  /** The router has ended at the broker, though it does not know. */
  isOver = false

  constructor(observed: ObservedFleet) {
    this.#observed = observed
    observed.fleet.network.faults.message = (endpoint: string, _: Frames) => {
      const step = endpoint.split('$snapshots.')[1]
      if (step === undefined) return 'deliver'
      if (step === this.#endsAt) this.isOver = true
      if (this.isOver) return 'drop'
      this.seen.set(step, this.of(step) + 1)
      if (step === 'unlock' && this.#endsAt === 'behind all') this.isOver = true
      return 'deliver'
    }
  }

  of(step: string): number {
    return this.seen.get(step) ?? 0
  }

  /** Under traffic, until a step was taken once more. */
  async taken(step: string): Promise<void> {
    const before = this.of(step)
    await this.#until(() => this.of(step) > before, step)
  }

  /** Under traffic, until the router ends before a step of a pass. */
  async endAt(step: string): Promise<void> {
    this.#endsAt = step
    await this.#until(() => this.isOver, step)
    this.#endsAt = undefined
  }

  async #until(isSo: () => boolean, what: string): Promise<void> {
    this.#observed.beginTraffic()
    const isDone = await this.#observed.fleet.simulation.run(isSo, { within: WITHIN_MS }).then(() => isSo())
    this.#observed.endTraffic()
    if (!isDone)
      throw new Error(`no step ${what} within ${WITHIN_MS} ms, but ${JSON.stringify([...this.seen])}`)
  }
}

async function runSeed(seed: number) {
  const random = seededRandom(seed)
  const step = STEPS[seed % STEPS.length]!
  const observed = await ObservedFleet.start(seed, ENGINE, {
    hasStream: true,
    snapshotMessages: SNAPSHOT_MESSAGES,
  })
  const { fleet } = observed
  const steps = new Steps(observed)
  // A snapshot of before is there, except in every third: the step that drops it has none then.
  const hasBefore = step === 'drop' || random.below(3) > 0
  if (hasBefore) {
    await steps.taken('unlock')
    await observed.idle()
    await fleet.stopRouter()
    if (random.below(2) === 0) await observed.workPastRouter(random.below(1000))
    await fleet.startRouter()
  }
  await steps.endAt(step)
  await fleet.stopRouter()
  await observed.workPastRouter(random.below(2000))
  steps.isOver = false
  observed.begin(true)
  await fleet.startRouter()
  observed.beginTraffic()
  await observed.lookFor(1000)
  await observed.idle()
  await observed.run(8000)
  const seen = await observed.seen()
  const purged = fleet.network.streamsAt(BROKER).get('homing-kv-default')!
  if (LEAVING.includes(step)) {
    // The next pass tidies it.
    await observed.run(30_000)
    await steps.taken('unlock')
  }
  const { chunks, images, named } = fleet.network.streamsAt(BROKER).beside('default')
  const leftOver = LEAVING.includes(step) ? chunks.size + images.size - 2 * named.size : 0
  const outcome = { ...seen, leftOver, step, hasBefore, isCut: purged.messages[0]!.position > 1 }
  await fleet.stop()
  return outcome
}

t.test(
  'wherever a router ends in a pass, one that starts alone has the index of the truth',
  { timeout: 3_600_000 },
  async t => {
    const cut = new Map<string, number>()
    for (let seed = FIRST; seed < FIRST + COUNT; seed++) {
      const { trusts, missing, surplus, staleExact, leftOver, step, reason, isCut } = await runSeed(seed)
      const where = `seed ${seed}, at ${step}: ${trusts.join(' → ')}, ${reason}`
      t.equal(trusts.at(-1), 'exact', where)
      t.equal(missing, 0, `${where}: missing`)
      t.equal(surplus, 0, `${where}: surplus`)
      t.equal(staleExact, 0, `${where}: stale under exact`)
      t.equal(leftOver, 0, `${where}: objects and chunks that no entry names`)
      if (isCut) cut.set(step, (cut.get(step) ?? 0) + 1)
    }
    t.comment(`purged before the end: ${[...cut].map(([step, count]) => `${step} ${count}`).join(', ')}`)
    if (COUNT >= 100) t.equal(cut.size, STEPS.length, 'of every step, some had a stream that was purged')
  },
)

t.test(
  'a broker that refuses a step is not asked each second, and nothing that no entry names piles up',
  async t => {
    for (const refused of ['lock', 'switch', 'purge', 'tidy']) {
      const observed = await ObservedFleet.start(FIRST, ENGINE, {
        hasStream: true,
        snapshotMessages: SNAPSHOT_MESSAGES,
      })
      const { fleet } = observed
      let asked = 0
      fleet.network.faults.message = (endpoint: string) => {
        if (endpoint.split('$snapshots.')[1] !== refused) return 'deliver'
        asked++
        return 'refuse'
      }
      observed.beginTraffic()
      await observed.run(10_000)
      observed.endTraffic()
      await observed.run(80_000)
      t.ok(asked > 1 && asked < 10, `${refused}: asked ${asked} times in 90 s`)
      const { chunks, images, named } = fleet.network.streamsAt(BROKER).beside('default')
      t.ok(images.size <= named.size, `${refused}: ${images.size} objects of ${named.size} entries`)
      t.equal(chunks.size, images.size, `${refused}: and no chunks besides`)
      await fleet.stop()
    }
  },
)

t.test('a key that has not changed is not stored again, however full the stream stays', async t => {
  // Less than what stays to prove a snapshot.
  const observed = await ObservedFleet.start(FIRST, ENGINE, { hasStream: true, snapshotMessages: 5 })
  const steps = new Steps(observed)
  observed.beginTraffic()
  await observed.run(10_000)
  observed.endTraffic()
  await observed.run(60_000)
  const [uploads, passes] = [steps.of('upload'), steps.of('unlock')]
  t.ok(uploads > 0)
  await observed.run(300_000)
  t.equal(steps.of('upload'), uploads)
  const more = steps.of('unlock') - passes
  t.ok(more > 0 && more < 6, `${more} passes in five minutes`)
  await observed.fleet.stop()
})
