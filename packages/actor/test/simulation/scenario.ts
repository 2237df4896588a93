/** One seed of toys: a system of a few threads, some toys on it, faults for a while, then rest. */

import type { ActorRef } from '@homing/actor'
import {
  asksSettleOnce,
  type Checker,
  childrenWithinParents,
  createSimulation,
  fifoPerPair,
  History,
  lossesHaveCauses,
  noDuplicates,
  restartsWithinBudget,
  type SeedOutcome,
  type SimulatedFaults,
  servesAgain,
  stoppedReceiveNothing,
  type TellTag,
  watchesFireOnce,
} from '@homing/actor/simulation'
import { seededRandom } from '@homing/base'
import {
  notebook,
  RESTARTS_MAX,
  RESTARTS_WITHIN_MS,
  TOY_SUPERVISION,
  type ToyMessage,
  tellTo,
  toy,
} from './toys.ts'

const HANG_MS_MAX = 40
const PAUSE_MS_MAX = 5
const DELAY_MS_MAX = 10
const SERVE_MS_MAX = 1500
/** A deadline is noticed late when its thread hangs or everything pauses. */
const LATE_MS_MAX = HANG_MS_MAX + 4 * PAUSE_MS_MAX

export interface ToyScenario {
  readonly threads: number
  readonly toys: number
  /** How long faults are dealt, in simulated time. */
  readonly faultMs: number
}

export const SMALL: ToyScenario = { threads: 3, toys: 6, faultMs: 60 }

const CHECKERS: readonly Checker[] = [
  fifoPerPair,
  noDuplicates,
  lossesHaveCauses,
  asksSettleOnce(LATE_MS_MAX),
  watchesFireOnce,
  restartsWithinBudget(RESTARTS_MAX, RESTARTS_WITHIN_MS),
  stoppedReceiveNothing,
  childrenWithinParents(SERVE_MS_MAX),
]

/** The faults of a seed: each kind in some seeds, none in a few. */
export function faultsOf(seed: number): SimulatedFaults {
  const random = seededRandom(seed ^ 0x5eed)
  const sometimes = (chance: number): number => (random.below(3) === 0 ? chance : 0)
  return {
    drop: sometimes(0.01),
    duplicate: sometimes(0.01),
    delay: sometimes(0.05),
    delayMsMax: DELAY_MS_MAX,
    crash: sometimes(0.01),
    crashesMax: 6,
    eager: sometimes(0.3),
    hang: sometimes(0.001),
    hangMsMax: HANG_MS_MAX,
    hangsMax: 3,
    spareNotReady: sometimes(0.5),
    slowStartMsMax: 200,
    pause: sometimes(0.005),
    pauseMsMax: PAUSE_MS_MAX,
    ...(random.below(4) === 0 ? { linkFrames: 2 + random.below(6), spillFrames: 8 + random.below(30) } : {}),
  }
}

export async function runToys(
  seed: number,
  scenario: ToyScenario = SMALL,
): Promise<SeedOutcome & { readonly messages: number }> {
  let simulatedMs = (): number => 0
  const history = new History(() => simulatedMs())
  const faults = faultsOf(seed)
  const names = Array.from({ length: scenario.threads }, (_, index) => `core-${index}`)
  const simulation = await createSimulation({
    seed,
    pools: { core: { count: scenario.threads } },
    faults,
    observer: history.observer(tagOf),
    provide: ({ uid }) => [[notebook, { history, uid }]],
    threadRestartsMax: 1000,
    threadBackoff: { min: '10ms', max: '80ms' },
  })
  simulatedMs = () => simulation.clock.nowMs()
  const toys: ActorRef<ToyMessage>[] = []
  for (let index = 0; index < scenario.toys; index++) {
    const id = `toy-${index}`
    const args = { id, generations: 2, threads: [...names, 'main'] }
    const thread = index % 4 === 3 ? 'main' : names[index % names.length]!
    // Grandparents restart often enough to see it all.
    const supervision = { ...TOY_SUPERVISION, max: RESTARTS_MAX }
    toys.push(simulation.spawn(toy, { name: id, args, thread, supervision }))
  }
  const { random } = simulation
  const endMs = simulatedMs() + scenario.faultMs
  while (simulatedMs() < endMs) {
    for (const one of toys) one.tell({ type: 'meet', others: toys })
    for (const one of toys) if (random.below(3) === 0) tellTo(history, 1, 'outside', one, 1)
    if (random.below(30) === 0) simulation.killThread(names[random.below(names.length)]!).catch(() => {})
    await simulation.run(undefined, { within: 10 })
  }
  simulation.setFaults({})
  history.record({ type: 'calm' })
  // Long enough for every slow start, backoff and deadline.
  await simulation.run(undefined, { within: 400 })
  for (const one of toys) one.tell({ type: 'rest' })
  let living = 0
  for (const one of toys) {
    living++
    // One whose restarts are spent is dead, and says so at once.
    one.ask({ type: 'ping' }, { timeout: 1000 }).then(
      actor => history.record({ type: 'served', actor }),
      (error: { code?: string }) => {
        if (error.code === 'HOMING_ACTOR_TERMINATED') living--
      },
    )
  }
  await simulation.run(undefined, { within: SERVE_MS_MAX - 400 })
  // Some are stopped, and their watchers are told.
  for (const one of toys) {
    if (random.below(2) === 0)
      void simulation.stop(one, random.below(2) === 0 ? {} : { after: 'mailbox', within: 50 })
  }
  await simulation.run(undefined, { within: 100 })
  const violations = [
    ...CHECKERS.flatMap(check => check(history.entries)),
    ...servesAgain(living, SERVE_MS_MAX)(history.entries),
  ]
  const stats = await simulation.settle(simulation.stats(), { within: '2s' })
  const report = await simulation.settle(
    simulation.shutdown({ ...(seed % 2 === 0 ? {} : { after: 'mailbox' }), deadline: '5s' }),
    { within: '20s' },
  )
  if (report.slow.length > 0) violations.push(`slow at the end: ${report.slow.join(', ')}`)
  violations.push(...CHECKERS.flatMap(check => check(history.entries)), ...simulation.violations)
  return {
    traceHash: simulation.traceHash,
    steps: simulation.steps,
    messages: stats.sent,
    violations: [...new Set(violations)],
  }
}

function tagOf(body: unknown): TellTag | undefined {
  return (body as { readonly tag?: TellTag } | null)?.tag
}
