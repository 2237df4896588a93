/**
 * Blocking and dying threads: a thread whose event loop stands still is ended after `hungAfter`, one that
 * ends is replaced. The actors come back under the same ref; an asker is told at once that the
 * thread is down.
 */

import { type ActorRef, createActorSystem, ThreadDownError } from '@homing/actor'
import { type TunnelMessage, tunnel } from './tunnel.ts'

const system = await createActorSystem({
  pools: { core: { count: 2 } },
  hungAfter: '2s',
  logLevel: 'silent',
})
const supervision = { directive: 'restart', max: 5, within: '1m', backoff: { min: 0, max: '1s' } } as const
const far = system.spawn(tunnel, { name: 'far', thread: 'core-0', supervision })
const near = system.spawn(tunnel, { name: 'near', thread: 'core-1', supervision })

/** Asks again while the thread is being replaced. */
async function where(ref: ActorRef<TunnelMessage>): Promise<string> {
  for (;;) {
    try {
      return await ref.ask({ type: 'where' }, { timeout: '10s' })
    } catch (error) {
      if (!(error instanceof ThreadDownError)) throw error
      await new Promise<void>(resolve => setTimeout(resolve, 5))
    }
  }
}

const ask = (): Promise<string> => far.ask({ type: 'where' }, { timeout: '30s' }).catch(error => error.code)

await where(far)
far.tell({ type: 'block' })
console.log(`while it blocks: ${await ask()}`)
console.log(`then: ${await where(far)}`)
far.tell({ type: 'exit' })
console.log(`as it exits: ${await ask()}`)
console.log(`then: ${await where(far)}`)
console.log(`all the time: ${await where(near)}`)
const lives = system.threads().find(thread => thread.name === 'core-0')?.lives ?? 0
console.log(`core-0 was replaced twice: ${lives >= 3}`)

await system.shutdown()
