/**
 * Ask across threads: every way in which an ask can settle. It always does, once, and by its deadline.
 */

import { isMainThread } from 'node:worker_threads'
import { createActorSystem, defineActor, type Reply } from '@homing/actor'

export type KeeperMessage =
  | { readonly type: 'square'; readonly n: number; readonly reply: Reply<number> }
  /** Answered when another message releases it. */
  | { readonly type: 'wait'; readonly reply: Reply<string> }
  | { readonly type: 'release' }
  | { readonly type: 'fail'; readonly reply: Reply<string> }

export const keeper = defineActor<KeeperMessage>(
  import.meta.url,
  'keeper',
)({
  setup() {
    const kept: Reply<string>[] = []
    return {
      square: ({ n, reply }) => reply(n * n),
      wait: ({ reply }) => void kept.push(reply),
      release() {
        for (const reply of kept.splice(0)) reply('much too late')
      },
      fail() {
        throw new Error('this arm always fails')
      },
    }
  },
})

async function main(): Promise<void> {
  const system = await createActorSystem({ pools: { far: { count: 1 } }, logLevel: 'silent' })
  const ref = system.spawn(keeper, {
    name: 'keeper',
    thread: 'far-0',
    supervision: { directive: 'restart', max: 5, within: '1m', backoff: { min: '5ms', max: '1s' } },
  })
  const square = async (n: number): Promise<number> => ref.ask({ type: 'square', n }, { timeout: '5s' })
  const show = (what: string, ask: Promise<unknown>): Promise<void> =>
    ask.then(
      value => console.log(`${what}: ${value}`),
      error => console.log(`${what}: ${error.name} ${error.code}`),
    )

  await show('an answer', square(12))
  await show('none by the deadline', ref.ask({ type: 'wait' }, { timeout: '50ms' }))
  ref.tell({ type: 'release' }) // answers the ask that has settled: that answer is discarded
  await show('the next answer', square(13))

  const leaving = new AbortController()
  const abandoned = ref.ask({ type: 'wait' }, { timeout: '1m', signal: leaving.signal })
  leaving.abort()
  await show('the caller goes away', abandoned)

  await show('the arm fails', ref.ask({ type: 'fail' }, { timeout: '5s' }))
  await show('it was restarted', square(14))

  const lost = ref.ask({ type: 'wait' }, { timeout: '1m' }) // and nobody waits a minute
  await Promise.all([show('the thread dies', lost), square(15).then(() => system.killThread('far-0'))])
  await show('it was replaced', square(16))

  console.log(`asks left open: ${system.counters().total.asksPending}`)
  await system.shutdown()
}

// The thread far-0 imports this module too, for the keeper.
if (isMainThread) await main()
