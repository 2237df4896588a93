/**
 * The actors of a torture run. They write their observations to the board, and fail in every way on demand.
 */

import { execSync } from 'node:child_process'
import { isMainThread } from 'node:worker_threads'
import {
  type ActorContext,
  type ActorRef,
  defineActor,
  type Reply,
  signal,
  type ThreadPlacement,
} from '@homing/actor'
import { Board, COUNT, MAIN_INDEX } from './board.ts'

let known: Board | undefined

/** The board of this thread; on the main thread the board of the last run. */
export function boardOf(memory: SharedArrayBuffer): Board {
  if (known === undefined || (isMainThread && !known.isOver(memory))) known = new Board(memory)
  return known
}

/** 'main' is 0, 'p-0' is 1. */
export function threadIndex(name: string): number {
  return name === 'main' ? MAIN_INDEX : Number(name.slice(name.lastIndexOf('-') + 1)) + 1
}

export type NodeMessage =
  /** Numbered. */
  | {
      readonly type: 'text'
      readonly from: number
      readonly life: number
      readonly n: number
      readonly text: string
    }
  /** Numbered, with objects in it. */
  | {
      readonly type: 'object'
      readonly from: number
      readonly life: number
      readonly n: number
      readonly pad: unknown
    }
  | Burst
  /** A burst until the link or the mailbox is full, at most `count`. */
  | (Omit<Burst, 'type'> & { readonly type: 'flood' })
  | { readonly type: 'add'; readonly a: number; readonly reply: Reply<number> }
  | {
      readonly type: 'addObject'
      readonly a: { readonly value: number }
      readonly reply: Reply<{ readonly value: number }>
    }
  | { readonly type: 'mute'; readonly reply: Reply<never> }
  /** Asks another node, which does not answer; the board shows that the ask settled. */
  | {
      readonly type: 'askOther'
      readonly to: ActorRef<NodeMessage>
      readonly isMuted: boolean
      readonly timeoutMs: number
    }
  | { readonly type: 'throw' }
  | { readonly type: 'throwOutside' }
  | { readonly type: 'rejectOutside' }
  | { readonly type: 'exit' }
  /** Only in that life of the thread, when one is named: an heir is not to be held up. */
  | { readonly type: 'spin'; readonly ms: number; readonly life?: number }
  | { readonly type: 'wait'; readonly ms: number; readonly life?: number }
  | { readonly type: 'exec'; readonly ms: number }
  | { readonly type: 'storm'; readonly id: number; readonly timers: number }
  | { readonly type: 'timer'; readonly id: number }

/** Sends `count` numbered messages to node `target`; then dies, if it is to. */
export interface Burst {
  readonly type: 'burst'
  readonly to: ActorRef<NodeMessage>
  readonly target: number
  readonly count: number
  readonly isDying: boolean
}

export interface NodeArgs {
  readonly index: number
  readonly memory: SharedArrayBuffer
}

/** Tells `to` up to `count` numbered messages of both kinds. False when it is full. */
export function sendNumbered(
  board: Board,
  from: number,
  life: number,
  to: ActorRef<NodeMessage>,
  target: number,
  count: number,
): boolean {
  for (let i = 0; i < count; i++) {
    const n = board.begin(from, target)
    const kind = (n * 7 + from) % 5
    const status =
      kind < 3
        ? to.tell({ type: 'text', from, life, n, text: kind === 0 ? '' : 'x'.repeat(n % 40) })
        : to.tell({ type: 'object', from, life, n, pad: kind === 3 ? n : [n, { deep: `${n}` }] })
    if (status === 'ok') board.sent(from, target, n)
    else {
      board.refused(from, target, n)
      board.add(status === 'full' ? COUNT.fullTells : COUNT.deadTells)
      return false
    }
  }
  return true
}

export const node = defineActor(
  import.meta.url,
  'node',
)<NodeMessage, NodeArgs>({
  setup(ctx, { index, memory }) {
    const board = boardOf(memory)
    const thread = threadIndex(ctx.thread)
    const life = board.begun(thread)
    board.place(index, thread)
    const die = (): never => {
      board.dies(thread)
      process.exit(1)
    }
    const numbered = (m: { readonly from: number; readonly life: number; readonly n: number }): void =>
      board.received(m.from, m.life, index, m.n)
    return {
      text: numbered,
      object: numbered,
      burst(m) {
        sendNumbered(board, index, life, m.to, m.target, m.count)
        if (m.isDying) die()
      },
      flood: m => void sendNumbered(board, index, life, m.to, m.target, m.count),
      add: m => m.reply(m.a + 1),
      addObject: m => m.reply({ value: m.a.value + 1 }),
      mute() {},
      askOther(m) {
        board.asked()
        const message = m.isMuted ? ({ type: 'mute' } as const) : ({ type: 'add', a: 1 } as const)
        const settled = (): void => board.settled()
        m.to.ask(message, { timeout: m.timeoutMs }).then(settled, settled)
      },
      throw() {
        board.heldUp(index)
        board.add(COUNT.throws)
        throw new Error('thrown in an arm')
      },
      throwOutside() {
        setImmediate(() => {
          board.dies(thread)
          throw new Error('thrown outside of any arm')
        })
      },
      rejectOutside() {
        board.dies(thread)
        void Promise.reject(new Error('nobody listens'))
      },
      exit: die,
      spin(m) {
        if (m.life !== undefined && m.life !== life) return
        const endMs = performance.now() + m.ms
        while (performance.now() < endMs);
      },
      wait(m) {
        if (m.life !== undefined && m.life !== life) return
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, m.ms)
      },
      exec: m => void execSync(`sleep ${m.ms / 1000}`),
      storm(m) {
        for (let i = 0; i < m.timers; i++) ctx.schedule((i * 37) % 20, { type: 'timer', id: m.id })
        // A timer that is cancelled must not fire.
        for (let i = 0; i < m.timers; i++) ctx.schedule(i % 5, { type: 'timer', id: m.id }).cancel()
      },
      timer: m => void board.addSubject(m.id),
    }
  },
})

export type MayflyMessage = { readonly type: 'stop' } | { readonly type: 'fail' } | { readonly type: 'note' }

/** Lives until it is told to end; it must get no message after its end. */
export const mayfly = defineActor(
  import.meta.url,
  'mayfly',
)<MayflyMessage, { readonly memory: SharedArrayBuffer }>({
  setup(ctx, { memory }) {
    const board = boardOf(memory)
    let isStopped = false
    const note = (): void => {
      if (isStopped) board.add(COUNT.handledAfterStopped)
    }
    return {
      stop() {
        note()
        ctx.stop()
      },
      fail() {
        note()
        throw new Error('as it was told')
      },
      note,
      [signal](s) {
        note()
        if (s.type === 'stopped') isStopped = true
      },
    }
  },
})

export type WatcherMessage = {
  readonly type: 'watch'
  readonly id: number
  readonly ref: ActorRef<MayflyMessage>
}

/** Watches each subject that it is told to watch, once. */
export const watcher = defineActor(
  import.meta.url,
  'watcher',
)<WatcherMessage, NodeArgs>({
  setup(ctx, { memory }) {
    const board = boardOf(memory)
    const thread = threadIndex(ctx.thread)
    board.begun(thread)
    const ids = new Map<string, number>()
    return {
      watch(m) {
        ids.set(m.ref.key, m.id)
        board.watched(m.id, thread)
        ctx.watch(m.ref)
      },
      [signal](s) {
        if (s.type !== 'terminated') return
        const id = ids.get(s.ref.key)
        if (id === undefined) board.add(COUNT.watchesFiredTwice)
        else board.fired(id)
        ids.delete(s.ref.key)
      },
    }
  },
})

export type NurseryMessage =
  | {
      readonly type: 'spawn'
      readonly id: number
      readonly thread: ThreadPlacement
      readonly isRestarted: boolean
      readonly watchers: readonly ActorRef<WatcherMessage>[]
      /** How it ends; 'stay': with its parent. */
      readonly end: 'stop' | 'fail' | 'stay'
    }
  | { readonly type: 'clear' }

/** Has children on any thread. */
export const nursery = defineActor(
  import.meta.url,
  'nursery',
)<NurseryMessage, NodeArgs>({
  setup(ctx: ActorContext<NurseryMessage>, { memory }) {
    const board = boardOf(memory)
    board.begun(threadIndex(ctx.thread))
    let children: ActorRef<MayflyMessage>[] = []
    return {
      spawn(m) {
        const ref = ctx.spawn(mayfly, {
          name: `mayfly-${m.id}`,
          args: { memory },
          thread: m.thread,
          shutdown: '2s',
          ...(m.isRestarted
            ? { supervision: { directive: 'restart', max: 3, within: '1m', backoff: { min: 1, max: 5 } } }
            : {}),
        })
        for (const [i, one] of m.watchers.entries()) one.tell({ type: 'watch', id: m.id + i, ref })
        for (let i = 0; i < 5; i++) ref.tell({ type: 'note' })
        if (m.end !== 'stay') ref.tell({ type: m.end })
        // What comes after the end must not arrive.
        for (let i = 0; i < 5; i++) ref.tell({ type: 'note' })
        // Kept for any end: the message that ends it may be lost with its thread, and then the actor
        // restarts.
        children.push(ref)
        if (children.length > 50) ctx.stop(children.shift())
      },
      clear() {
        for (const ref of children) ctx.stop(ref)
        children = []
      },
    }
  },
})

/** Fails in its setup, or at the message that each setup sends itself. */
export const poisoned = defineActor(
  import.meta.url,
  'poisoned',
)<
  { readonly type: 'poison' },
  { readonly memory: SharedArrayBuffer; readonly id: number; readonly where: 'setup' | 'arm' }
>({
  setup(ctx, { memory, id, where }) {
    const board = boardOf(memory)
    board.begun(threadIndex(ctx.thread))
    board.addSubject(id)
    if (where === 'setup') throw new Error('poisoned setup')
    ctx.self.tell({ type: 'poison' })
    return {
      poison() {
        throw new Error('poison')
      },
    }
  },
})

export type SinkMessage =
  | { readonly type: 'hold' }
  | { readonly type: 'put'; readonly n: number }
  | { readonly type: 'seen'; readonly reply: Reply<readonly number[]> }

/**
 * Its messages are held back until its mailbox overflows; then it shows which it kept. `id`: 1 held, 2 let
 * go, then one for each message.
 */
export const sink = defineActor(
  import.meta.url,
  'sink',
)<SinkMessage, { readonly memory: SharedArrayBuffer; readonly id: number }>({
  coalesce: m => (m.type === 'put' ? m.n % 8 : undefined),
  setup(_ctx, { memory, id }) {
    const board = boardOf(memory)
    const seen: number[] = []
    return {
      hold: () =>
        new Promise(resolve => {
          board.addSubject(id)
          const look = (): void => void (board.subject(id) >= 2 ? resolve() : setTimeout(look, 1))
          look()
        }),
      put(m) {
        seen.push(m.n)
        board.addSubject(id)
      },
      seen: m => m.reply(seen),
    }
  },
})
