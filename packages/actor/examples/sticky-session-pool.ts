/**
 * Sticky session pool: one actor for each session, placed by the key of the session on a pool of threads.
 *
 * A key sticks to its thread, so the sessions spread without a table, and whatever a thread caches for a session
 * is found again. When a thread dies, its sessions, and no others, begin anew in its place.
 */

import { isMainThread } from 'node:worker_threads'
import { type ActorRef, createActorSystem, defineActor, type Reply } from '@homing/actor'

export interface SessionMessage {
  readonly type: 'say'
  readonly reply: Reply<{ readonly thread: string; readonly turn: number }>
}

export const session = defineActor(
  import.meta.url,
  'session',
)<SessionMessage>({
  setup({ thread }) {
    let turn = 0
    return {
      say({ reply }) {
        turn++
        reply({ thread, turn })
      },
    }
  },
})

/** The supervisor of all sessions: spawns one when its key is seen for the first time. */
export type DeskMessage =
  | { readonly type: 'open'; readonly key: string; readonly reply: Reply<ActorRef<SessionMessage>> }
  | { readonly type: 'close'; readonly key: string }

export const desk = defineActor(
  import.meta.url,
  'desk',
)<DeskMessage, { readonly sessionsMax: number }>({
  setup(ctx, { sessionsMax }) {
    const sessions = new Map<string, ActorRef<SessionMessage>>()
    const open = (key: string): ActorRef<SessionMessage> => {
      if (sessions.size >= sessionsMax) close(sessions.keys().next().value!)
      const opened = ctx.spawn(session, {
        name: `session ${key}`,
        args: undefined,
        thread: { pool: 'sessions', key },
        supervision: { directive: 'restart', max: 5, within: '1m', backoff: { min: '5ms', max: '1s' } },
      })
      sessions.set(key, opened)
      return opened
    }
    const close = (key: string): void => {
      const closing = sessions.get(key)
      if (closing === undefined) return
      sessions.delete(key)
      ctx.stop(closing)
    }
    return {
      open: ({ key, reply }) => reply(sessions.get(key) ?? open(key)),
      close: ({ key }) => close(key),
    }
  },
})

async function main(): Promise<void> {
  const system = await createActorSystem({ pools: { sessions: { count: 3 } }, logLevel: 'silent' })
  const sessions = system.spawn(desk, { name: 'desk', args: { sessionsMax: 1000 } })
  const say = async (key: string): Promise<string> => {
    const ref = await sessions.ask({ type: 'open', key }, { timeout: '5s' })
    const { thread, turn } = await ref.ask({ type: 'say' }, { timeout: '5s' })
    return `${key} ${turn} on ${thread}`
  }

  const keys = ['ada', 'bea', 'cyd', 'dan', 'eve', 'fay']
  for (const key of keys) console.log(`${await say(key)}, ${await say(key)}`)

  await system.killThread('sessions-1')
  console.log('sessions-1 died and was replaced')
  for (const key of keys) console.log(await say(key))
  await system.shutdown()
}

// The threads of the pool import this module too, for the sessions.
if (isMainThread) await main()
