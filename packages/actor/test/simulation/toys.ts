/**
 * Toys: actors that do at random whatever actors can do to each other (tell, ask, watch, spawn on other
 * threads, fail, stop), and record it. The history is a capability, so that all threads of a simulation share
 * it.
 */

import {
  type ActorContext,
  type ActorRef,
  defineActor,
  defineCapability,
  type Reply,
  type SpawnOptions,
  type Supervision,
  signal,
} from '@homing/actor'
import type { History, TellTag } from '@homing/actor/simulation'

export interface Notebook {
  readonly history: History
  /** The life of the thread that it was provided to. */
  readonly uid: number
}

export const notebook = defineCapability<Notebook>({
  name: 'notebook',
  create: () => {
    throw new Error('cannot make a notebook: the simulation provides it')
  },
})

export type ToyMessage =
  | { readonly type: 'work'; readonly tag: TellTag; readonly load: readonly number[] }
  | { readonly type: 'meet'; readonly others: readonly ActorRef<ToyMessage>[] }
  | { readonly type: 'act' }
  | { readonly type: 'rest' }
  | {
      readonly type: 'question'
      readonly how: 'now' | 'later' | 'never' | 'await' | 'fail'
      readonly reply: Reply<number>
    }
  | { readonly type: 'answerLater'; readonly reply: Reply<number> }
  | { readonly type: 'ping'; readonly reply: Reply<string> }

export interface ToyArgs {
  readonly id: string
  readonly parent?: string
  /** How deep its children may go below it. */
  readonly generations: number
  readonly threads: readonly string[]
}

export const RESTARTS_MAX = 4
export const RESTARTS_WITHIN_MS = 500

export const TOY_SUPERVISION: Supervision = {
  directive: 'restart',
  max: RESTARTS_MAX,
  within: RESTARTS_WITHIN_MS,
  backoff: { min: '1ms', max: '20ms', jitter: 0.3 },
}

const CHILDREN_MAX = 3

export const toy = defineActor(
  import.meta.url,
  'toy',
)<ToyMessage, ToyArgs>({
  reentrant: false,
  setup(ctx, args) {
    const { history, uid } = ctx.use(notebook)
    const { id, parent } = args
    history.record({ type: 'started', actor: id, parent, uid })
    let others: readonly ActorRef<ToyMessage>[] = []
    const children: ActorRef<ToyMessage>[] = []
    const watches = new Map<string, number>()
    let isResting = false
    ctx.schedule(1 + ctx.random.below(8), { type: 'act' })

    const someone = (): ActorRef<ToyMessage> | undefined => {
      const all = [...others, ...children]
      return all[ctx.random.below(Math.max(1, all.length))]
    }
    const act = (): void => {
      const roll = ctx.random.below(100)
      const other = someone()
      if (roll < 6) spawnChild()
      else if (roll < 8) stopChild()
      else if (other === undefined) return
      else if (roll < 60) {
        for (let count = 1 + ctx.random.below(6); count > 0; count--)
          tellTo(history, uid, id, other, ctx.random.below(4))
      } else if (roll < 90) ask(other)
      else if (roll < 96) watch(other)
      else if (roll < 98) throw new Error('a toy broke')
      else ctx.self.tell({ type: 'work', tag: history.tag(id, id), load: [] }) === 'ok'
    }
    const spawnChild = (): void => {
      if (args.generations === 0 || children.length >= CHILDREN_MAX) return
      const child = ctx.spawn(toy, childOptions(ctx, args, `${id}.${history.next()}`))
      children.push(child)
      watch(child)
    }
    const stopChild = (): void => {
      const child = children[ctx.random.below(Math.max(1, children.length))]
      if (child === undefined) return
      if (ctx.random.below(2) === 0) ctx.stop(child)
      else ctx.stop(child, { after: 'mailbox', within: 1 + ctx.random.below(40) })
    }
    const watch = (other: ActorRef<ToyMessage>): void => {
      if (watches.has(other.key)) return
      const number = history.next()
      watches.set(other.key, number)
      history.record({ type: 'watched', watch: number, watcher: id, watched: other.name })
      ctx.watch(other)
    }
    const ask = (other: ActorRef<ToyMessage>): void => {
      const how = QUESTIONS[ctx.random.below(QUESTIONS.length)]!
      const timeoutMs = 1 + ctx.random.below(60)
      const number = history.next()
      history.record({ type: 'asked', ask: number, dueMs: ctx.clock.nowMs() + timeoutMs, uid })
      const settle = (outcome: string): void => history.record({ type: 'settled', ask: number, outcome })
      other.ask({ type: 'question', how }, { timeout: timeoutMs }).then(
        () => settle('answered'),
        (error: { code?: string }) => settle(error.code ?? 'failed'),
      )
    }

    return {
      work({ tag, load }) {
        history.record({ type: 'handled', ...tag })
        // What was sent must not be seen by its sender: a shared array would show up as a wrong tag or load.
        ;(load as number[]).push(1)
      },
      meet(message) {
        others = message.others.filter(({ key }) => key !== ctx.self.key)
      },
      act() {
        if (isResting) return
        ctx.schedule(1 + ctx.random.below(8), { type: 'act' })
        act()
      },
      rest() {
        isResting = true
        for (const child of children) child.tell({ type: 'rest' })
      },
      async question({ how, reply }) {
        if (how === 'now') reply(1)
        else if (how === 'later') ctx.schedule(ctx.random.below(20), { type: 'answerLater', reply })
        else if (how === 'await') {
          for (let turns = 0; turns < 5; turns++) await null
          reply(2)
        } else if (how === 'fail') throw new Error('a toy was asked to fail')
      },
      answerLater: ({ reply }) => reply(3),
      ping: ({ reply }) => reply(id),
      [signal](given) {
        if (given.type === 'terminated') {
          const number = watches.get(given.ref.key)
          watches.delete(given.ref.key)
          const at = children.findIndex(({ key }) => key === given.ref.key)
          if (at >= 0 && given.reason !== 'threadExit') children.splice(at, 1)
          if (number !== undefined)
            history.record({ type: 'terminated', watch: number, reason: given.reason })
        } else if (given.type === 'stopped') history.record({ type: 'stopped', actor: id })
        else history.record({ type: 'restarting', actor: id })
      },
    }
  },
})

const QUESTIONS = ['now', 'now', 'now', 'later', 'never', 'await', 'fail'] as const

function childOptions(ctx: ActorContext<ToyMessage>, parent: ToyArgs, id: string): SpawnOptions<ToyArgs> {
  const thread = parent.threads[ctx.random.below(parent.threads.length)]!
  const args: ToyArgs = {
    id,
    parent: parent.id,
    generations: parent.generations - 1,
    threads: parent.threads,
  }
  return {
    name: id,
    args,
    thread: ctx.random.below(2) === 0 ? 'here' : thread,
    ...(ctx.random.below(2) === 0 ? { supervision: TOY_SUPERVISION } : {}),
  }
}

/** Tells `to` to work, and records it when the tell was accepted. */
export function tellTo(
  history: History,
  uid: number,
  from: string,
  to: ActorRef<ToyMessage>,
  loadSize: number,
): void {
  const tag = history.tag(from, to.name)
  // Before the tell, which may hand it over at once.
  history.record({ type: 'sent', ...tag, uid })
  const load = Array.from({ length: loadSize }, () => 0)
  if (to.tell({ type: 'work', tag, load }) !== 'ok')
    history.record({ type: 'lost', ...tag, cause: 'refused' })
}
