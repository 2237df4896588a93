/**
 * The actors of the bench. Threads import this module, so it does nothing by itself.
 *
 * Every actor that is told checks what it gets: the messages of one sender are numbered 1, 2, 3, …, and a
 * number out of turn (lost, twice, overtaken) is a violation, which fails the bench.
 */

import process from 'node:process'
import { type ActorRef, defineActor, type Reply, signal } from '@homing/actor'
import { threadCpuUs } from './cpu.ts'
import { EXIT_AT, HANDLED_AT } from './times.ts'

/** What an actor was told so far. */
export interface Tally {
  readonly count: number
  /** Messages that were not the next one. */
  readonly violations: number
  /** CPU time that its thread had so far, in microseconds. */
  readonly cpuUs: number
}

export interface AskTally {
  readonly type: 'tally'
  readonly reply: Reply<Tally>
}

export type StepMessage = { readonly type: 'step'; readonly n: number } | AskTally

/** Told on its own thread. */
export const stepper = defineActor(
  import.meta.url,
  'stepper',
)<StepMessage>({
  setup() {
    let count = 0
    let violations = 0
    return {
      step({ n }) {
        if (n !== ++count) violations++
      },
      tally: ({ reply }) => reply({ count, violations, cpuUs: threadCpuUs() }),
    }
  },
})

export type WorkMessage =
  | {
      readonly type: 'work'
      readonly n: number
      readonly a: number
      readonly b: number
      readonly text: string
    }
  | AskTally

/** Told from another thread, by the million. */
export const worker = defineActor(
  import.meta.url,
  'worker',
)<WorkMessage>({
  setup() {
    let count = 0
    let violations = 0
    return {
      work({ n, a, b, text }) {
        if (n !== ++count || a !== n + 1 || b !== -n || text.length !== 16) violations++
      },
      tally: ({ reply }) => reply({ count, violations, cpuUs: threadCpuUs() }),
    }
  },
})

export type ObjectMessage =
  | { readonly type: 'object'; readonly n: number; readonly body: { readonly a: number; readonly b: string } }
  | AskTally

/** Told from another thread objects with objects in them. */
export const collector = defineActor(
  import.meta.url,
  'collector',
)<ObjectMessage>({
  setup() {
    let count = 0
    let violations = 0
    return {
      object({ n, body }) {
        if (n !== ++count || body.a !== n) violations++
      },
      tally: ({ reply }) => reply({ count, violations, cpuUs: threadCpuUs() }),
    }
  },
})

export type HeapMessage =
  | { readonly type: 'load'; readonly n: number; readonly items: readonly string[] }
  | { readonly type: 'load'; readonly n: number; readonly bytes: Uint8Array<ArrayBuffer> }
  | AskTally

/** Told objects and buffers of any size. */
export const heaper = defineActor<HeapMessage>(
  import.meta.url,
  'heaper',
)({
  setup() {
    let count = 0
    let violations = 0
    return {
      load({ n }) {
        if (n !== ++count) violations++
      },
      tally: ({ reply }) => reply({ count, violations, cpuUs: threadCpuUs() }),
    }
  },
})

export type AddMessage =
  | { readonly type: 'add'; readonly a: number; readonly reply: Reply<number> }
  /** The CPU time that its thread had so far, in microseconds. */
  | { readonly type: 'usage'; readonly reply: Reply<number> }

/** Asked, from its own thread and from another. */
export const adder = defineActor(
  import.meta.url,
  'adder',
)<AddMessage>({
  setup: () => ({
    add: ({ a, reply }) => reply(a + 1),
    usage: ({ reply }) => reply(threadCpuUs()),
  }),
})

/** Lives of `idler` on this thread. */
export const lives = { started: 0, stopped: 0 }

export interface IdleMessage {
  readonly type: 'poke'
}

const idle = {
  poke() {},
  [signal](received: { readonly type: string }) {
    if (received.type === 'stopped') lives.stopped++
  },
}

/** Does nothing and keeps nothing, so that what it costs is the runtime's. */
export const idler = defineActor(
  import.meta.url,
  'idler',
)<IdleMessage>({
  setup() {
    lives.started++
    return idle
  },
})

export type NurseryMessage =
  | { readonly type: 'spawn'; readonly count: number }
  /** Stops the children that were spawned last. */
  | { readonly type: 'stop' }

/** The parent of idlers. */
export const nursery = defineActor(
  import.meta.url,
  'nursery',
)<NurseryMessage>({
  setup(ctx) {
    let latest: ActorRef<IdleMessage>[] = []
    return {
      spawn({ count }) {
        latest = Array.from({ length: count }, () => ctx.spawn(idler, { name: 'idler', args: undefined }))
      },
      stop() {
        for (const ref of latest) ctx.stop(ref)
        latest = []
      },
    }
  },
})

/** Index of a number in `VictimArgs.words`. */
export const LAST_N = 0
export const HANDLED = 1
export const VIOLATIONS = 2
/** Stays 0: a thread that waits for it sleeps. */
const ASLEEP = 3
export const VICTIM_WORDS = 4

export interface VictimArgs {
  /** See times.ts. */
  readonly timesNs: SharedArrayBuffer
  /** Int32: the last n that was handled, how many were, how many of them were not after the one before. */
  readonly words: SharedArrayBuffer
}

export type VictimMessage =
  | { readonly type: 'work'; readonly n: number }
  /** Ends the thread in the middle of the message. */
  | { readonly type: 'exit' }
  /** Never gives the thread back: busy, or asleep outside of JavaScript's event loop. */
  | { readonly type: 'hang'; readonly isBusy: boolean }
  /** Is never answered. */
  | { readonly type: 'silent'; readonly reply: Reply<void> }
  | { readonly type: 'ping'; readonly reply: Reply<void> }

/** Lives on a thread that is killed; what it sees is in shared memory, where it survives. */
export const victim = defineActor(
  import.meta.url,
  'victim',
)<VictimMessage, VictimArgs>({
  setup(_ctx, args) {
    const timesNs = new BigInt64Array(args.timesNs)
    const words = new Int32Array(args.words)
    let isFirst = true
    return {
      work({ n }) {
        if (isFirst) Atomics.store(timesNs, HANDLED_AT, process.hrtime.bigint())
        isFirst = false
        if (n <= words[LAST_N]!) Atomics.add(words, VIOLATIONS, 1)
        Atomics.store(words, LAST_N, n)
        Atomics.add(words, HANDLED, 1)
      },
      exit() {
        Atomics.store(timesNs, EXIT_AT, process.hrtime.bigint())
        process.exit(1)
      },
      hang({ isBusy }) {
        Atomics.store(timesNs, EXIT_AT, process.hrtime.bigint())
        if (isBusy) for (;;);
        Atomics.wait(words, ASLEEP, 0)
      },
      silent() {},
      ping: ({ reply }) => reply(),
    }
  },
})
