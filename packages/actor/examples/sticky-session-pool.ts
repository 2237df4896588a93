/**
 * Sticky session pool: sessions spread over a pool of threads by key, each on one thread, without a table of them.
 *
 * The router has one member on each thread. A key is always the same member's, so it finds what it left there. When a
 * thread dies, the keys of its member wait for the few milliseconds that its replacement takes; no other key notices.
 */

import { isMainThread } from 'node:worker_threads'
import { createActorSystem, createKeyRouter, defineActor, type Reply } from '@homing/actor'

export type SessionsMessage =
  | {
      readonly type: 'say'
      readonly session: string
      readonly text: string
      readonly reply: Reply<{ readonly thread: string; readonly turn: number }>
    }
  | { readonly type: 'close'; readonly session: string }

/** A member: the sessions whose keys it has. The one that was silent longest makes room for a new one. */
export const sessions = defineActor(
  import.meta.url,
  'sessions',
)<SessionsMessage, { readonly sessionsMax: number }>({
  setup({ thread }, { sessionsMax }) {
    const turns = new Map<string, string[]>()
    return {
      say({ session, text, reply }) {
        const said = turns.get(session) ?? []
        said.push(text)
        turns.delete(session)
        turns.set(session, said)
        if (turns.size > sessionsMax) turns.delete(turns.keys().next().value!)
        reply({ thread, turn: said.length })
      },
      close: ({ session }) => void turns.delete(session),
    }
  },
})

async function main(): Promise<void> {
  const system = await createActorSystem({ pools: { pool: { count: 3 } }, logLevel: 'silent' })
  const router = createKeyRouter(system, sessions, {
    name: 'sessions',
    args: { sessionsMax: 1000 },
    by: ({ session }) => session,
    over: { pool: 'pool', size: 3 },
    holdFor: '10s', // then the keys would go to the other members; `whileDown: 'remap'` would not wait at all
  })
  const say = async (session: string, text: string): Promise<string> => {
    const { thread, turn } = await router.ask({ type: 'say', session, text }, { timeout: '20s' })
    return `${session} ${turn} on ${thread}`
  }

  const people = ['ada', 'ben', 'cyd', 'dan', 'eve', 'ida']
  for (const name of people) console.log(`${await say(name, 'hello')}, ${await say(name, 'again')}`)

  const replaced = system.killThread('pool-1')
  console.log('pool-1 dies')
  console.log((await Promise.all(people.map(name => say(name, 'still there?')))).join('\n'))
  await replaced

  router.tell({ type: 'close', session: 'dan' })
  console.log(await say('dan', 'hello again'), 'after its end')
  await system.shutdown()
}

// The threads of the pool import this module too, for the members.
if (isMainThread) await main()
