/** Balls: players on a ring throw them to each other, as fast as messages go. In a simulation, and bare. */

import { type ActorRef, defineActor } from '@homing/actor'
import { createSimulation, type SimulatedFaults, type Simulation } from '@homing/actor/simulation'
import { seededRandom } from '@homing/base'

export type BallMessage =
  | { readonly type: 'meet'; readonly next: ActorRef<BallMessage> }
  | { readonly type: 'ball'; readonly left: number }

/** Throws every ball to the next one. */
export const player = defineActor(
  import.meta.url,
  'player',
)<BallMessage>({
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
const THREADS = 3
const THROWS = 1_000_000_000

/** A simulated game after so many steps; `balls` of each player. */
export async function play(
  seed: number,
  balls: number,
  steps: number,
  faults: SimulatedFaults = {},
): Promise<Simulation> {
  const pools = { core: { count: THREADS } }
  const simulation = await createSimulation({ seed, pools, hungAfter: 0, faults })
  const players = Array.from({ length: PLAYERS }, (_, i) =>
    simulation.spawn(player, { name: `player-${i}`, args: undefined, thread: `core-${i % THREADS}` }),
  )
  for (const [i, ref] of players.entries()) {
    ref.tell({ type: 'meet', next: players[(i + 1) % PLAYERS]! })
    for (let ball = 0; ball < balls; ball++) ref.tell({ type: 'ball', left: THROWS })
  }
  await simulation.step(steps)
  return simulation
}

/** The bare kernel of a simulation: a seeded choice among the players that hold balls, one message a step. */
export function playBare(seed: number, balls: number, steps: number): void {
  const random = seededRandom(seed)
  const boxes = Array.from({ length: PLAYERS }, () => {
    const box: { readonly type: 'ball'; readonly left: number }[] = []
    for (let ball = 0; ball < balls; ball++) box.push({ type: 'ball', left: THROWS })
    return box
  })
  for (let step = 0; step < steps; ) {
    const at = random.below(PLAYERS)
    const ball = boxes[at]!.pop()
    if (ball === undefined) continue
    boxes[(at + 1) % PLAYERS]!.push({ type: 'ball', left: ball.left - 1 })
    step++
  }
  const held = boxes.reduce((sum, box) => sum + box.length, 0)
  if (held !== PLAYERS * balls) throw new Error(`${held} balls are left of ${PLAYERS * balls}`)
}
