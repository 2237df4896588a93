/** What the tests of one thread share: actors made of a setup, a system that ends with its test, a log that is kept. */

import {
  type ActorContext,
  type ActorSpecification,
  type Behavior,
  defineActor,
  type Message,
} from '@homing/actor'
import { createTestSystem, type TestSystem } from '@homing/actor/testing'
import type { Log, LogFields } from '@homing/log'
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

export function startSystem(t: Test, options: Parameters<typeof createTestSystem>[0] = {}): TestSystem {
  const made = createTestSystem(options)
  t.teardown(async () => {
    const shutdown = made.shutdown({ deadline: 1 })
    await made.advance(1)
    await shutdown
  })
  return made
}

export interface Line {
  readonly level: string
  readonly fields: LogFields
  readonly text: string
}

/** A log that keeps its lines. */
export function recordingLog(): Log & { readonly lines: Line[] } {
  const lines: Line[] = []
  const at = (level: string) => (fields: LogFields, text: string) => void lines.push({ level, fields, text })
  const log = {
    lines,
    trace: at('trace'),
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: () => log,
    isLevelEnabled: () => true,
  }
  return log
}
