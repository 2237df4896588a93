/** What the tests of one thread share: actors made of a setup, and a system that ends with its test. */

import {
  type ActorContext,
  type ActorSpecification,
  type Behavior,
  defineActor,
  type Message,
  type Supervision,
} from '@homing/actor'
import { createTestSystem, type TestSystem } from '@homing/actor/testing'
import type { Test } from 'tap'

export type Setup<M extends Message, A> = (
  ctx: ActorContext<M>,
  args: A,
) => Behavior<M> | Promise<Behavior<M>>

/** An actor for one test; `more` is what else a definition can say. */
export function actor<M extends Message, A = undefined>(
  setup: Setup<M, A>,
  more: Omit<ActorSpecification<M, A>, 'setup'> = {},
) {
  return defineActor(import.meta.url, 'inline')<M, A>({ setup, ...more })
}

/** Restarts up to `max` times a minute, after `min` ms at first. */
export const restart = (max = 10, min = 10): Supervision => ({
  directive: 'restart',
  max,
  within: '1m',
  backoff: { min, max: 1000 },
})

export function startSystem(t: Test, options: Parameters<typeof createTestSystem>[0] = {}): TestSystem {
  const made = createTestSystem(options)
  t.teardown(async () => {
    const shutdown = made.shutdown({ deadline: 1 })
    await made.advance(1)
    await shutdown
  })
  return made
}
