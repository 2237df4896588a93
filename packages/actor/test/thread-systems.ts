/**
 * What the tests of several threads share: systems that end with their tests, and waiting for an actor whose
 * thread is away.
 */

import {
  type ActorRef,
  type ActorSystem,
  type ActorSystemOptions,
  createActorSystem,
  type Supervision,
  ThreadDownError,
} from '@homing/actor'
import { silentLog } from '@homing/base'
import type { Test } from 'tap'
import type { EchoMessage } from './fixtures/echo.ts'

export const soon = { timeout: '1m' } as const
export const restart = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: 1, max: 10 },
} as const satisfies Supervision

/** A system with threads p-0 and p-1, and without the preloads of the test runner there. */
export async function startThreads(t: Test, options: ActorSystemOptions = {}): Promise<ActorSystem> {
  const system = await createActorSystem({
    pools: { p: { count: 2 } },
    log: silentLog,
    logLevel: 'silent',
    threadExecArgv: [],
    ...options,
  })
  t.teardown(() => system.shutdown({ deadline: '1s' }))
  return system
}

/** Asks until the actor answers again, and answers where it is; bounded by the timeout of the test. */
export async function whereWhenUp(ref: ActorRef<EchoMessage>): Promise<string> {
  for (;;) {
    try {
      return await ref.ask({ type: 'where' }, soon)
    } catch (error) {
      if (!(error instanceof ThreadDownError)) throw error
      await new Promise<void>(resolve => setImmediate(resolve))
    }
  }
}
