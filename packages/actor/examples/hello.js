/**
 * JavaScript as it is: no types, no compiler. Threads import this module too, so only main runs the program.
 */

import { isMainThread } from 'node:worker_threads'
import { createActorSystem, defineActor } from '@homing/actor'

export const greeter = defineActor(
  import.meta.url,
  'greeter',
)({
  setup: ctx => ({
    greet: ({ name, reply }) => reply(`hello ${name}, from ${ctx.thread}`),
  }),
})

if (isMainThread) {
  const system = await createActorSystem({ pools: { core: { count: 1 } } })
  const ref = system.spawn(greeter, { name: 'greeter', thread: 'core-0' })
  console.log(await ref.ask({ type: 'greet', name: 'Ada' }, { timeout: '5s' }))
  await system.shutdown()
}
