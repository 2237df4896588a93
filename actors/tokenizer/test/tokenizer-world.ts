/** The tokenizer as an actor, with engines that it can ask over a network in memory, for the tests of this folder. */

import { fileURLToPath } from 'node:url'
import type { Worker } from 'node:worker_threads'
import { createTestSystem, type TestSystem } from '@homing/actor/testing'
import { type HttpExchange, MemoryNetwork, transportCapability } from '@homing/transport'
import type { Test } from 'tap'
import { type ReadResult, type TokenizerArgs, tokenizer } from '../src/index.ts'
import { fleetOf, type WorkerOptions } from './fleet.ts'

export const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
/** Of simulated time, which does not pass by itself. */
export const ASK = { timeout: '10m' } as const
export const TOKENIZE_MS_MAX = 5000
/** Of the simulated clock. */
export const WAIT_MS_MAX = 60_000
export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)

export async function start(t: Test, settings: Partial<TokenizerArgs>, ...workers: WorkerOptions[]) {
  // The network must live on the clock of the system that it is given to.
  const { clock } = createTestSystem()
  const network = new MemoryNetwork({ clock })
  const threads: Worker[] = []
  const onWorker = (thread: Worker): void => void threads.push(thread)
  process.on('worker', onWorker)
  const system = createTestSystem({ clock, provide: [[transportCapability, network.transport()]] })
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
      ...settings,
    },
  })
  ref.tell({ type: 'fleet', fleet: fleetOf(...workers) })
  await system.settle()
  const read = (body: object): Promise<ReadResult> =>
    ref.ask(
      {
        type: 'read',
        route: 'messages' in body ? 'chat' : 'completions',
        body: utf8(JSON.stringify(body)),
        headers: {},
        wantTokenIds: true,
        waitMsMax: WAIT_MS_MAX,
      },
      ASK,
    )
  const whenStarted = () => ref.ask({ type: 'whenStarted' }, ASK)
  const serve = (onExchange: (exchange: HttpExchange) => void, port = 8001) =>
    network.transport().http.listen({ host: '10.0.0.1', port }, onExchange)
  return { system, ref, read, whenStarted, serve, threads }
}

export const ids = (count: number): number[] => Array.from({ length: count }, (_, id) => id)

/** Settles the system again and again: what is waited for comes from another thread. */
export async function untilTrue(system: TestSystem, isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) {
    await system.settle()
    await new Promise<void>(resolve => setImmediate(resolve))
  }
}
