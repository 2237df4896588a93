/**
 * The steps that a world of a sequence follower may take, at random or by script, and what must hold after
 * each.
 */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import { FollowerWorld } from './follower-world.ts'

/** Batches for replay: all that a test publishes. */
export const KEPT_ALL = 10_000

export type Step =
  | { readonly do: 'publish'; readonly count: number }
  | {
      readonly do: 'deliver'
      readonly count: number
      readonly fate: 'deliver' | 'lose' | 'twice' | 'overtake'
    }
  | { readonly do: 'reply'; readonly count: number; readonly fate: 'deliver' | 'lose' }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'refuse'; readonly count: number }
  | {
      readonly do:
        | 'connect'
        | 'disconnect'
        | 'restart'
        | 'restartInPlace'
        | 'engineRestarted'
        | 'resync'
        | 'garbage'
        | 'repeat'
        | 'silence'
        | 'answer'
        | 'save'
        | 'restartRouter'
        | 'restartUnheard'
        | 'wrongPort'
        | 'rightPort'
    }

const few = fc.integer({ min: 1, max: 4 })
export const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('publish' as const), count: few }) },
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant('deliver' as const),
        count: few,
        fate: fc.constantFrom('deliver', 'deliver', 'deliver', 'lose', 'twice', 'overtake'),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('reply' as const),
        count: fc.integer({ min: 1, max: 12 }),
        fate: fc.constantFrom('deliver', 'deliver', 'lose'),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.integer({ min: 1, max: 2500 }) }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('refuse' as const), count: few }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constantFrom(
          'connect' as const,
          'connect' as const,
          'disconnect' as const,
          'restart' as const,
          'restartInPlace' as const,
          'engineRestarted' as const,
          'resync' as const,
          'garbage' as const,
          'repeat' as const,
          'silence' as const,
          'answer' as const,
        ),
      }),
    },
  ),
  { minLength: 5, maxLength: 60 },
)

/** The same, with restarts in place that nothing tells of. */
export const stepsOfLives: fc.Arbitrary<readonly Step[]> = fc
  .array(
    fc.oneof(
      { weight: 4, arbitrary: steps.map(script => script.slice(0, 6)) },
      { weight: 2, arbitrary: fc.constant<readonly Step[]>([{ do: 'restartUnheard' }]) },
      {
        weight: 1,
        arbitrary: fc.record({ count: fc.integer({ min: 1, max: 12 }) }).map(({ count }): readonly Step[] => [
          { do: 'publish', count },
          { do: 'deliver', count, fate: 'lose' },
        ]),
      },
    ),
    { minLength: 3, maxLength: 10 },
  )
  .map(parts => parts.flat())

/** The same, and the replay port is a neighbour's for a while. */
export const stepsOfPorts: fc.Arbitrary<readonly Step[]> = fc
  .array(
    fc.oneof(
      { weight: 4, arbitrary: stepsOfLives.map(script => script.slice(0, 12)) },
      {
        weight: 2,
        arbitrary: fc.constantFrom<readonly Step[]>([{ do: 'wrongPort' }], [{ do: 'rightPort' }]),
      },
    ),
    { minLength: 2, maxLength: 6 },
  )
  .map(parts => parts.flat())

const quiet: readonly Step[] = [
  { do: 'connect' },
  { do: 'publish', count: 3 },
  { do: 'reply', count: 30, fate: 'deliver' },
  { do: 'deliver', count: 9, fate: 'deliver' },
  { do: 'reply', count: 30, fate: 'deliver' },
]
const newRouter: readonly Step[] = [{ do: 'restartRouter' }, { do: 'connect' }]

/** The same, with a router that writes checkpoints and begins anew now and then. */
export const stepsOfRouters: fc.Arbitrary<readonly Step[]> = fc
  .array(
    fc.oneof(
      { weight: 5, arbitrary: steps.map(script => script.slice(0, 8)) },
      {
        weight: 3,
        arbitrary: fc.constantFrom<readonly Step[]>(
          [{ do: 'save' }],
          [...quiet, { do: 'save' }],
          [...quiet, { do: 'save' }, { do: 'publish', count: 3 }, ...newRouter],
          [{ do: 'publish', count: 2 }, ...newRouter],
          [...newRouter, ...quiet],
        ),
      },
    ),
    { minLength: 3, maxLength: 12 },
  )
  .map(parts => parts.flat())

export function take(world: FollowerWorld, step: Step): void {
  switch (step.do) {
    case 'publish':
      for (let i = 0; i < step.count; i++) world.publish(world.source.publish())
      return
    case 'deliver':
      for (let i = 0; i < step.count; i++) world.deliver(step.fate)
      return
    case 'reply':
      world.reply(step.count, step.fate)
      return
    case 'wait':
      world.clock.advance(step.ms)
      return
    case 'refuse':
      world.refusals += step.count
      return
    case 'connect':
      world.connect()
      return
    case 'disconnect':
      world.disconnect()
      return
    case 'restart':
      world.disconnect()
      world.source.restart()
      return
    case 'restartInPlace':
      world.restartInPlace()
      return
    case 'restartUnheard':
      world.restartUnheard()
      return
    case 'wrongPort':
      world.isPortWrong = true
      world.isLied = true
      for (let i = 0; i < 8; i++) world.neighbour.publish()
      return
    case 'rightPort':
      world.isPortWrong = false
      return
    case 'engineRestarted':
      world.engineRestarted()
      return
    case 'resync':
      world.applier.open(0)
      world.follower.resync('lost', 'the index was reset')
      return
    case 'garbage':
      world.publish(world.source.publishGarbage())
      return
    case 'repeat':
      world.repeatLast()
      return
    case 'silence':
      world.replayAnswers = false
      return
    case 'answer':
      world.replayAnswers = true
      return
    case 'save':
      world.save()
      return
    case 'restartRouter':
      world.restartRouter()
      return
  }
}

export function run(
  seed: number,
  hasReplay: boolean,
  keptMax: number,
  script: readonly Step[],
  offersSnapshots = false,
): FollowerWorld {
  const world = new FollowerWorld(seed, hasReplay, keptMax, offersSnapshots)
  for (const step of script) {
    take(world, step)
    world.check()
  }
  world.settle()
  world.check()
  // Whatever was lost before shows with the next batch at the latest.
  world.publish(world.source.publish())
  world.settle()
  world.check()
  assert.equal(world.follower.status().state, 'live')
  assert.equal(world.follower.status().lastSequence, world.source.lastSequence)
  return world
}

/** Where nothing says what has happened: at rest, what is believed is true. */
export function runUnheard(
  seed: number,
  hasReplay: boolean,
  keptMax: number,
  script: readonly Step[],
): FollowerWorld {
  const world = new FollowerWorld(seed, hasReplay, keptMax, false)
  for (const step of script) {
    take(world, step)
    world.check()
  }
  world.settleForLong()
  if (keptMax === KEPT_ALL || !world.wasSpliced) world.checkTruth()
  return world
}
