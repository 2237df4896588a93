/** The rows on simulation: how fast it is, with the whole runtime and with its checkers. */

import type { SimulatedFaults } from '@homing/actor/simulation'
import { runToys } from '../../packages/actor/test/simulation/scenario.ts'
import { say } from '../harness.ts'
import { play, playBare } from './balls.ts'
import { perSecond } from './loads.ts'
import type { Row } from './row.ts'
import { nightMessages, simulatedSeeds, simulatedSteps } from './sizes.ts'
import { inTurns } from './turns.ts'
import { newSeed, reportViolations } from './violations.ts'

const SEED = 1
/** Balls of each player: 64 messages under way. */
const BALLS = 8
const SEED_BALLS = 1
const STEPS_OF_A_SEED = 2000
const FAULTS: SimulatedFaults = { crash: 0.0005, delay: 0.01 }
/** What a night of simulation should see at least. */
const NIGHT_MESSAGES = 2e8

export const simulationRows: readonly Row[] = [
  {
    name: 'simulation',
    threads: 1,
    targets: {
      simulatedMessages: { floor: 0.5e6, goal: 1.5e6 },
      simulatedSeeds: { floor: 200, goal: 500 },
    },
    async run() {
      const messages = await inTurns(simulatedSteps, {
        bare: async steps => {
          const from = performance.now()
          playBare(SEED, BALLS, steps)
          return { perS: perSecond(steps, from) }
        },
        ours: async steps => {
          const from = performance.now()
          const simulation = await play(SEED, BALLS, steps)
          const passedMs = performance.now() - from
          const { handled } = await simulation.settle(simulation.stats())
          await simulation.settle(simulation.shutdown())
          return { perS: (handled / passedMs) * 1000 }
        },
      })
      let seed = SEED
      const seeds = await inTurns(simulatedSeeds, {
        bare: async count => {
          const from = performance.now()
          for (let i = 0; i < count; i++) playBare(seed + i, SEED_BALLS, STEPS_OF_A_SEED)
          return { perS: perSecond(count, from) }
        },
        ours: async count => {
          const from = performance.now()
          for (let i = 0; i < count; i++) await play(seed++, SEED_BALLS, STEPS_OF_A_SEED, FAULTS)
          return { perS: perSecond(count, from) }
        },
      })
      return {
        simulatedMessages: {
          value: messages.ours.perS,
          unit: 'msg/s',
          raw: { 'bare kernel': messages.bare.perS },
        },
        simulatedSeeds: { value: seeds.ours.perS, unit: 'seed/s', raw: { 'bare kernel': seeds.bare.perS } },
      }
    },
  },
  {
    name: 'night',
    threads: 1,
    // A night of 8 hours on one core; at the goal, a billion messages.
    targets: { nightViolations: { floor: 0, goal: 0 }, nightHours: { floor: 8, goal: 1.6 } },
    async run() {
      const first = newSeed()
      const violations: string[] = []
      let messages = 0
      let seed = first
      const from = performance.now()
      for (; messages < nightMessages; seed++) {
        const outcome = await runToys(seed)
        messages += outcome.messages
        violations.push(...outcome.violations.map(violation => `seed ${seed}: ${violation}`))
      }
      const perS = perSecond(messages, from)
      say(`  night: seeds ${first} … ${seed - 1}, ${messages} messages`)
      reportViolations(violations)
      return {
        nightMessages: { value: messages, unit: 'messages with checkers' },
        nightViolations: { value: violations.length, unit: 'violations' },
        nightHours: { value: NIGHT_MESSAGES / perS / 3600, unit: 'h for 2×10⁸ messages' },
      }
    },
  },
]
