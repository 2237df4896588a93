/**
 * Draining shutdown: what a shutdown does with messages that wait. By default they are dropped and counted.
 * With `after: 'mailbox'` they are handled first, for as long as `within` allows.
 */

import { createActorSystem, type StopOptions } from '@homing/actor'
import { archivist } from './archivist.ts'

async function run(what: string, options: StopOptions, ms: number): Promise<void> {
  const system = await createActorSystem({ pools: { core: { count: 1 } }, logLevel: 'silent' })
  const filed = new Int32Array(new SharedArrayBuffer(8))
  const ref = system.spawn(archivist, {
    name: 'archivist',
    args: { filed, ms },
    thread: 'core-0',
    shutdown: '100ms',
  })
  await ref.ask({ type: 'ready' }, { timeout: '30s' })
  for (let n = 0; n < 10; n++) ref.tell({ type: 'page', n })
  const report = await system.shutdown(options)
  const { droppedMessages, undrained } = report
  const isAll = droppedMessages === 0 && filed[0] === 10
  console.log(
    `${what}: ${isAll ? 'all filed' : 'some dropped'}, undrained: ${undrained.join() || 'none'}, told so: ${filed[1] === 1}`,
  )
}

await run('at once', {}, 2)
await run('after the mailbox', { after: 'mailbox', within: '30s' }, 2)
await run('after the mailbox, too slow', { after: 'mailbox', within: '200ms' }, 60)
