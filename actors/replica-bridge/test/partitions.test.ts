/**
 * Partitions: three replicas book and free at random while one of them is cut off for a minute, or the broker
 * is, and messages are lost; when all is well again, each has exactly what is open everywhere, in requests,
 * prefill tokens and blocks. HOMING_SIM_SEEDS sets how many seeds (default 10), HOMING_SEED the first.
 */

import process from 'node:process'
import { type Random, seededRandom } from '@homing/base'
import t, { type Test } from 'tap'
import { EXPIRY_MS, endpointOf, NATS, SERVER, World, ZMQ } from './replica-world.ts'

const SEEDS = Number(process.env['HOMING_SIM_SEEDS'] ?? 10)
const FIRST = Number(process.env['HOMING_SEED'] ?? 1)
const REPLICAS = 3
const WORKERS = 2
const STEP_MS = 10
const PARTITION_MS = 60_000
/** Silence, expiry, and the longest pause between two questions. */
const HEAL_MS = 5000 + EXPIRY_MS + 7000
const PREFILL_TOKENS = 60
/** Of every prompt on a worker, all equal: requests of one replica share them. */
const BLOCKS = 5
/** What is cut: all replicas from their broker, one from the others' sockets, one from the broker. */
const CUTS = ['broker', 'sockets', 'one at the broker'] as const

/** What is open, in truth: worker slots of the bookings of each replica. */
type Truth = readonly Map<string, number>[]

t.test(
  `${SEEDS} seeds from ${FIRST}: nothing is lost, and nothing counted twice`,
  { timeout: 900_000 },
  async t => {
    let booked = 0
    for (let seed = FIRST; seed < FIRST + SEEDS; seed++) booked += await run(t, seed)
    t.comment(`${booked} bookings`)
  },
)

async function run(t: Test, seed: number): Promise<number> {
  const random = seededRandom(seed)
  const kind = CUTS[seed % CUTS.length]!
  const where = `seed ${seed}, ${kind}`
  const world = new World()
  world.start(t, REPLICAS, kind === 'sockets' ? ZMQ : NATS)
  const truth: Truth = world.replicas.map(() => new Map())
  await world.pass(3000, STEP_MS)
  const cut = random.below(REPLICAS)
  await traffic(world, truth, random, 3000)
  const broker = `nats://${SERVER}/any`
  const places = kind === 'sockets' ? [endpointOf(cut), endpointOf(cut).replace(':5800', ':5801')] : [broker]
  const of = kind === 'one at the broker' ? world.replicas[cut]!.transport : undefined
  for (const place of places) world.network.disconnect(place, of)
  await traffic(world, truth, random, PARTITION_MS)
  const others = [0, 1, 2].filter(i => i !== cut)
  /**
   * Who is known to whom, as far as it can be said: over sockets the one that is cut off still hears the
   * others.
   */
  const known: (readonly [number, readonly number[]])[] =
    kind === 'broker' ? [0, 1, 2].map(i => [i, [i]]) : others.map(i => [i, others])
  if (kind === 'one at the broker') known.push([cut, [cut]])
  for (const [i, all] of known)
    await checkLoads(t, world, truth, i, all, `${where}: who cannot be heard does not count at replica ${i}`)
  for (const place of places) world.network.reconnect(place, of)
  let sent = 0
  world.network.faults.message = () => (++sent % (2 + random.below(9)) === 0 ? 'drop' : 'deliver')
  await traffic(world, truth, random, 5000)
  world.network.faults.message = undefined
  await traffic(world, truth, random, 2000)
  await world.pass(HEAL_MS, STEP_MS)
  for (const i of world.replicas.keys())
    await checkLoads(t, world, truth, i, [0, 1, 2], `${where}: all counts at replica ${i}`)
  const booked = world.replicas.reduce((sum, replica) => sum + replica.booked, 0)
  for (const [i, open] of truth.entries())
    for (const id of open.keys()) world.replicas[i]!.tracker.tell({ type: 'free', decisionId: id })
  await world.pass(100)
  for (const [i, replica] of world.replicas.entries()) {
    const empty = Array.from({ length: WORKERS }, () => [0, 0, 0])
    t.strictSame(await world.loads(replica), empty, `${where}: replica ${i} returns to zero`)
  }
  for (const replica of world.replicas) await replica.system.shutdown()
  return booked
}

/** Bookings and ends at random; a booking that nobody touches would expire at its own replica. */
async function traffic(world: World, truth: Truth, random: Random, ms: number): Promise<void> {
  for (let left = ms; left > 0; ) {
    const i = random.below(REPLICAS)
    const [replica, open] = [world.replicas[i]!, truth[i]!]
    if (open.size < 5 && random.below(2) === 0) {
      const slot = random.below(WORKERS)
      open.set(await world.book(replica, slot), slot)
      left -= 1
    } else if (open.size > 0) {
      const id = [...open.keys()][random.below(open.size)]!
      open.delete(id)
      replica.tracker.tell({ type: 'free', decisionId: id })
    }
    for (const [j, booked] of truth.entries())
      for (const id of booked.keys()) world.replicas[j]!.tracker.tell({ type: 'touch', decisionId: id })
    const pause = STEP_MS * (1 + random.below(ms > 10_000 ? 200 : 20))
    await world.pass(pause, STEP_MS)
    left -= pause
  }
  // What was told last is on its way.
  await world.pass(20, STEP_MS)
}

/** What a replica counts at each worker is what these replicas have open there. */
async function checkLoads(
  t: Test,
  world: World,
  truth: Truth,
  i: number,
  replicas: readonly number[],
  what: string,
): Promise<void> {
  const expected = Array.from({ length: WORKERS }, (_, slot) => {
    const counts = replicas.map(of => [...truth[of]!.values()].filter(at => at === slot).length)
    const requests = counts.reduce((sum, count) => sum + count, 0)
    // All requests are for one prompt, and its blocks count once, whichever router has them.
    return [requests, requests > 0 ? BLOCKS : 0, PREFILL_TOKENS * requests]
  })
  t.strictSame(await world.loads(world.replicas[i]!), expected, what)
}
