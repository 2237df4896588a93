/** Your own actor, from your own module, asked across threads; then its thread is killed. */

import { createActorSystem } from '@homing/actor'
import { wordCounter } from './word-counter.ts'

const system = await createActorSystem({ pools: { core: { count: 1 } }, logLevel: 'silent' })
const counter = system.spawn(wordCounter, {
  name: 'counter',
  args: { ignore: ['the'] },
  thread: { pool: 'core', key: 'counter' },
  supervision: {
    directive: 'restart',
    max: 5,
    within: '30s',
    backoff: { min: '20ms', max: '2s', jitter: 0.2 },
  },
})

counter.tell({ type: 'add', text: 'The pigeon that flies home, flies home.' })
console.log('flies:', await counter.ask({ type: 'count', word: 'flies' }, { timeout: '1s' }))

await system.killThread('core-0')
counter.tell({ type: 'add', text: 'home' })
console.log(
  'home, after its thread was replaced:',
  await counter.ask({ type: 'count', word: 'home' }, { timeout: '1s' }),
)

const report = await system.shutdown()
console.log('slow to stop:', report.slow.length)
