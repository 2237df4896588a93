/**
 * A draining shutdown from many seeds: sources on several threads have told a sink on another, and asked a
 * crew whose hands are everywhere, when it begins. Links are slow, threads hang for a while; in every other
 * seed they also die. `HOMING_SIM_SEEDS` sets how many seeds (default 60), `HOMING_SIM_SEED` the first.
 */

import { createSimulation, runSeeds, type SeedOutcome } from '@homing/actor/simulation'
import { seededRandom } from '@homing/base'
import t from 'tap'
import { crew, DONE, newWords, STOPPED, sink, source, TOLD } from './fixtures/drainers.ts'

const FIRST = Number(process.env['HOMING_SIM_SEED'] ?? 1)
const COUNT = Number(
  process.env['HOMING_SIM_SEEDS'] ?? (process.env['HOMING_SIM_SEED'] === undefined ? 60 : 1),
)
const SOURCES = 3
const HANDS = 3
const ROUNDS = 4
const POUR = 20
/** Half of the time for draining is enough, too, for an ask that is not answered before its deadline. */
const DEADLINE_MS = 20_000
const restart = { directive: 'restart', max: 1000, within: '1m', backoff: { min: 1, max: 5 } } as const

async function drained(
  seed: number,
): Promise<SeedOutcome & { readonly handled: number; readonly deaths: number }> {
  const random = seededRandom(seed ^ 0xd7a1)
  const dies = seed % 2 === 0
  const simulation = await createSimulation({
    seed,
    pools: { core: { count: 3 } },
    faults: {
      delay: random.below(2) * 0.2,
      delayMsMax: 10,
      hang: random.below(2) * 0.002,
      hangMsMax: 40,
      pause: random.below(2) * 0.005,
      pauseMsMax: 5,
      ...(random.below(3) === 0 ? { linkFrames: 4, spillFrames: 20 } : {}),
      ...(dies ? { crash: 0.003, crashesMax: 3, spareNotReady: 0.5, slowStartMsMax: 50 } : {}),
    },
    threadRestartsMax: 1000,
    threadBackoff: { min: 1, max: 5 },
  })
  const words = newWords()
  const hands = newWords()
  const mailbox = { capacity: 100_000 }
  const supervision = restart
  const place = (): string => ['main', 'core-0', 'core-1', 'core-2'][random.below(4)]!
  const into = simulation.spawn(sink, {
    name: 'sink',
    args: { words },
    thread: place(),
    mailbox,
    supervision,
  })
  const crewArgs = { words: hands, threads: Array.from({ length: HANDS }, place), supervision }
  const team = simulation.spawn(crew, { name: 'crew', args: crewArgs, thread: place(), supervision })
  for (let index = 0; index < SOURCES; index++) {
    const from = simulation.spawn(source, {
      name: `source-${index}`,
      args: { words },
      thread: place(),
      mailbox,
      supervision,
    })
    for (let round = 0; round < ROUNDS; round++) from.tell({ type: 'pour', count: POUR, into })
  }
  let answered = 0
  let refused = 0
  for (let ask = 0; ask < 10; ask++) {
    team.ask({ type: 'job' }, { timeout: '5s' }).then(
      () => answered++,
      (error: { readonly code?: string }) => {
        // A link that is full refuses an ask, or the tell that hands it on.
        if (error.code === 'HOMING_ACTOR_ASK_REFUSED' || error.code === 'HOMING_ACTOR_ASK_TIMEOUT') answered++
        else refused++
      },
    )
  }
  await simulation.run(undefined, { steps: random.below(200) })
  const report = await simulation.settle(simulation.shutdown({ after: 'mailbox', deadline: DEADLINE_MS }), {
    within: DEADLINE_MS + 5000,
  })
  // Each thread lives once, unless it died.
  const deaths = simulation.threads().reduce((total, { lives }) => total + lives - 1, 0)
  const violations = [...simulation.violations]
  const [done, told] = [words[DONE]!, words[TOLD]!]
  if (done > told) violations.push(`${done} items were handled, of ${told} that were told`)
  if (answered + refused !== 10) violations.push(`${answered} asks were answered, ${refused} refused, of 10`)
  // A thread that dies when all its actors have ended gives no report.
  const slow = report.slow.filter(name => !dies || !name.startsWith('thread '))
  if (slow.length > 0) violations.push(`slow: ${slow.join(', ')}`)
  if (deaths === 0) {
    if (done !== told) violations.push(`${done} items were handled, of ${told} that were told`)
    if (refused > 0) violations.push(`${refused} asks were refused`)
    if (report.undrained.length > 0) violations.push(`undrained: ${report.undrained.join(', ')}`)
    if (report.droppedMessages > 0) violations.push(`${report.droppedMessages} messages were dropped`)
    if (words[STOPPED] !== 1 || hands[STOPPED] !== 100 + HANDS)
      violations.push('not all were given their last signal')
  }
  return { traceHash: simulation.traceHash, steps: simulation.steps, violations, handled: done, deaths }
}

t.test('whatever the links do, what was told before a draining shutdown is handled, and it ends', async t => {
  let handled = 0
  let deaths = 0
  const command = (seed: number): string =>
    `HOMING_SIM_SEED=${seed} npx tap packages/actor/test/drain-simulation.test.ts`
  const report = await runSeeds({ first: FIRST, count: COUNT, command }, async seed => {
    const outcome = await drained(seed)
    handled += outcome.handled
    deaths += outcome.deaths
    return outcome
  })
  t.comment(`${handled} items, ${deaths} deaths, ${report.steps} steps`)
  t.equal(report.seeds, COUNT)
  if (COUNT > 1) t.ok(deaths > 0 && handled > 0)
})
