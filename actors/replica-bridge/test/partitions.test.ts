/**
 * Partitions: three replicas book and free at random while one of them is cut off for a minute, messages are lost, and a tracker dies; when all is
 * well again, each has exactly what is open everywhere. HOMING_SIM_SEEDS sets how many seeds (default 10), HOMING_SEED the first.
 */

import process from 'node:process'
import { type Random, seededRandom } from '@homing/clock'
import t, { type Test } from 'tap'
import { EXPIRY_MS, endpointOf, NATS, type Replica, SERVER, World, ZMQ } from './replica-world.ts'

const SEEDS = Number(process.env['HOMING_SIM_SEEDS'] ?? 10)
const FIRST = Number(process.env['HOMING_SEED'] ?? 1)
const REPLICAS = 3
const WORKERS = 2
const STEP_MS = 10
const PARTITION_MS = 60_000
/** Silence, expiry, and the longest pause between two questions. */
const HEAL_MS = 5000 + EXPIRY_MS + 7000
const PREFILL_TOKENS = 60

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
  const isBroker = seed % 2 === 0
  const where = `seed ${seed}, over ${isBroker ? 'a broker' : 'sockets'}`
  const world = new World()
  world.start(t, REPLICAS, isBroker ? NATS : ZMQ)
  const truth: Truth = world.replicas.map(() => new Map())
  await world.pass(3000, STEP_MS)
  const cut = random.below(REPLICAS)
  await traffic(world, truth, random, 3000)
  const places = isBroker
    ? [`nats://${SERVER}/any`]
    : [endpointOf(cut), endpointOf(cut).replace(':5800', ':5801')]
  for (const place of places) world.network.disconnect(place)
  await traffic(world, truth, random, PARTITION_MS)
  const apart = (cut + 1) % REPLICAS
  const known = isBroker ? [apart] : [0, 1, 2].filter(i => i !== cut)
  const seen = await requestsOf(world, world.replicas[apart]!)
  t.strictSame(seen, requestsIn(truth, known), `${where}: who cannot be heard does not count`)
  for (const place of places) world.network.reconnect(place)
  let sent = 0
  world.network.faults.message = () => (++sent % (2 + random.below(9)) === 0 ? 'drop' : 'deliver')
  await traffic(world, truth, random, 5000)
  world.network.faults.message = undefined
  await traffic(world, truth, random, 2000)
  await world.pass(HEAL_MS, STEP_MS)
  const expected = requestsIn(truth, [0, 1, 2])
  for (const [i, replica] of world.replicas.entries()) {
    const loads = await world.loads(replica)
    const requests = loads.map(([count]) => count)
    if (JSON.stringify(requests) !== JSON.stringify(expected))
      t.strictSame(requests, expected, `${where}: replica ${i}`)
    const prefill = expected.map(count => count * PREFILL_TOKENS)
    t.strictSame(
      loads.map(([, , tokens]) => tokens),
      prefill,
      `${where}: prefill of replica ${i}`,
    )
  }
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

function requestsIn(truth: Truth, replicas: readonly number[]): number[] {
  const counts = new Array<number>(WORKERS).fill(0)
  for (const i of replicas) for (const slot of truth[i]!.values()) counts[slot]!++
  return counts
}

async function requestsOf(world: World, replica: Replica): Promise<(number | undefined)[]> {
  return (await world.loads(replica)).map(([requests]) => requests)
}
