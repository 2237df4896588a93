/**
 * How fast is simulation? Toys that throw balls around a ring on three threads and main, then whole seeds.
 *
 *   pnpm exec node bench/simulation/speed.ts        prints one JSON object
 */

import { stdout } from 'node:process'
import { type ActorRef, defineActor } from '@homing/actor'
import { createSimulation, type SimulatedFaults, type Simulation } from '@homing/actor/simulation'
import { runToys } from '../../packages/actor/test/simulation/scenario.ts'
import { runRouterSeed } from '../../test/simulation/router-world.ts'

type BallMessage =
  | { readonly type: 'meet'; readonly next: ActorRef<BallMessage> }
  | { readonly type: 'ball'; readonly left: number }

const player = defineActor(
  import.meta.url,
  'player',
)<BallMessage, undefined>({
  setup() {
    let next: ActorRef<BallMessage> | undefined
    return {
      meet(message) {
        next = message.next
      },
      ball: ({ left }) => void next!.tell({ type: 'ball', left: left - 1 }),
    }
  },
})

const PLAYERS = 8
const RUNS = 5

async function play(
  seed: number,
  balls: number,
  steps: number,
  faults: SimulatedFaults = {},
): Promise<{ readonly simulation: Simulation; readonly ms: number }> {
  const startMs = performance.now()
  const simulation = await createSimulation({ seed, pools: { core: { count: 3 } }, hungAfter: 0, faults })
  const players = Array.from({ length: PLAYERS }, (_, number) =>
    simulation.spawn(player, { name: `player-${number}`, args: undefined, thread: `core-${number % 3}` }),
  )
  for (const [number, ref] of players.entries()) {
    ref.tell({ type: 'meet', next: players[(number + 1) % PLAYERS]! })
    for (let ball = 0; ball < balls; ball++) ref.tell({ type: 'ball', left: 1_000_000_000 })
  }
  await simulation.step(steps)
  return { simulation, ms: performance.now() - startMs }
}

async function messagesPerSecond(balls: number, steps: number): Promise<number> {
  const { simulation, ms } = await play(1, balls, steps)
  const { handled } = await simulation.settle(simulation.stats())
  await simulation.settle(simulation.shutdown())
  return (handled / ms) * 1000
}

async function seedsPerSecond(count: number, run: (seed: number) => Promise<unknown>): Promise<number> {
  const startMs = performance.now()
  for (let seed = 1; seed <= count; seed++) await run(seed)
  return (count / (performance.now() - startMs)) * 1000
}

async function median(measure: () => Promise<number>): Promise<number> {
  const figures: number[] = []
  for (let run = 0; run < RUNS; run++) figures.push(await measure())
  return Math.round(figures.toSorted((a, b) => a - b)[RUNS >> 1]!)
}

const faults: SimulatedFaults = { crash: 0.0005, delay: 0.01 }
const figures = {
  'messages/s, 8 balls': await median(() => messagesPerSecond(1, 100_000)),
  'messages/s, 64 balls': await median(() => messagesPerSecond(8, 50_000)),
  'messages/s, 512 balls': await median(() => messagesPerSecond(64, 20_000)),
  'seeds/s, 2,000 steps, 8 balls, faults': await median(() =>
    seedsPerSecond(100, seed => play(seed, 1, 2000, faults)),
  ),
  'seeds/s, toys of the test, with checkers': await median(() => seedsPerSecond(30, seed => runToys(seed))),
  'seeds/s, whole router': await median(() => seedsPerSecond(20, seed => runRouterSeed(seed))),
}
stdout.write(`${JSON.stringify(figures)}\n`)
