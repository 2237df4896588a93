/**
 * The tokenizer as an actor, with engines that it can ask over a network in memory, for the tests of this
 * folder.
 */

import { fileURLToPath } from 'node:url'
import type { Worker } from 'node:worker_threads'
import { type ActorRef, type ActorSystem, createActorSystem, type Duration } from '@homing/actor'
import { SimulatedClock } from '@homing/actor/testing'
import type { PromptsMessage } from '@homing/actors/directory'
import { durationMs } from '@homing/base'
import { type HttpExchange, MemoryNetwork, transportCapability } from '@homing/transport'
import type { Test } from 'tap'
import { type ReadResult, type TokenizerArgs, tokenizer } from '../src/index.ts'
import { fleetOf, type WorkerOptions } from './fleet.ts'

export const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
/** Of simulated time, which does not pass by itself. */
export const ASK = { timeout: '10m' } as const
export const TOKENIZE_MS_MAX = 5000
export const HEDGE_MS = 100
/** Of the simulated clock. */
export const WAIT_MS_MAX = 60_000
export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)

/** What the directory is told. */
export class HeardPrompts {
  readonly messages: PromptsMessage[] = []
  readonly ref = {
    tell: (message: PromptsMessage) => {
      this.messages.push(message)
      return 'ok'
    },
  } as unknown as ActorRef<PromptsMessage>
}

export async function start(t: Test, settings: Partial<TokenizerArgs>, ...workers: WorkerOptions[]) {
  // Readers are on real threads; only the tokenizer and the engines are on the simulated clock.
  const clock = new SimulatedClock()
  const network = new MemoryNetwork({ clock })
  const threads: Worker[] = []
  const onWorker = (thread: Worker): void => void threads.push(thread)
  process.on('worker', onWorker)
  const system = timed(
    await createActorSystem({
      clock,
      logLevel: 'silent',
      // Each thread that is started is one that a reader needs.
      warmSpare: false,
      threadExecArgv: [],
      provide: [[transportCapability, network.transport()]],
    }),
    clock,
  )
  t.teardown(async () => {
    process.off('worker', onWorker)
    await system.shutdown()
  })
  const ref = system.spawn(tokenizer, {
    name: 'tokenizer',
    supervision: {
      directive: 'restart',
      max: 1,
      within: '1m',
      backoff: { min: '1ms', max: '1ms', jitter: 0 },
    },
    args: {
      threads: 1,
      tokenizers: [],
      queueMax: 100,
      promptCacheBytes: 1e7,
      wordTableBytes: 2 ** 20,
      inlineBodyBytesMax: 0,
      loaded: new Map(),
      checkEvery: 0,
      tokenizeMsMax: TOKENIZE_MS_MAX,
      tokenizeHedgeMs: HEDGE_MS,
      ...settings,
    },
  })
  const tellFleet = (...now: WorkerOptions[]) => ref.tell({ type: 'fleet', fleet: fleetOf(...now) })
  tellFleet(...workers)
  await system.settle()
  const read = (body: object, promptIds?: Int32Array): Promise<ReadResult> =>
    ref.ask(
      {
        type: 'read',
        route: 'messages' in body ? 'chat' : 'completions',
        body: utf8(JSON.stringify(body)),
        promptIds,
        headers: {},
        wantTokenIds: true,
        waitMsMax: WAIT_MS_MAX,
      },
      ASK,
    )
  const whenStarted = () => ref.ask({ type: 'whenStarted' }, ASK)
  const serve = (onExchange: (exchange: HttpExchange) => void, port = 8001) =>
    network.transport().http.listen({ host: '10.0.0.1', port }, onExchange)
  return { system, ref, read, whenStarted, serve, tellFleet, threads }
}

export const ids = (count: number): number[] => Array.from({ length: count }, (_, id) => id)

/** A system whose time the test moves. */
interface TimedSystem extends ActorSystem {
  /** Lets the actors of main do what they have to do; not those on threads. */
  settle(): Promise<void>
  /** Moves time forward from timer to timer, and lets the actors of main finish after each. */
  advance(duration: Duration): Promise<void>
}

const SETTLE_ROUNDS = 20

function timed(system: ActorSystem, clock: SimulatedClock): TimedSystem {
  const settle = async (): Promise<void> => {
    for (let round = 0; round < SETTLE_ROUNDS; round++)
      await new Promise<void>(resolve => setImmediate(resolve))
  }
  const advance = async (duration: Duration): Promise<void> => {
    const targetMs = clock.nowMs() + durationMs(duration)
    await settle()
    for (let dueMs = clock.nextDueMs; dueMs !== undefined && dueMs <= targetMs; dueMs = clock.nextDueMs) {
      clock.advance(Math.max(0, dueMs - clock.nowMs()))
      await settle()
    }
    clock.advance(Math.max(0, targetMs - clock.nowMs()))
    await settle()
  }
  return Object.assign(system, { settle, advance })
}

/** Settles the system again and again: what is waited for comes from another thread. */
export async function untilTrue(system: TimedSystem, isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await system.settle()
}
