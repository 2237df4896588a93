/**
 * Your own actor, from a module of your own, under faults: it throws, then its thread is killed.
 *
 * Its ref stays good throughout. What it had counted is lost each time, and what it was told meanwhile is
 * not. An actor that must not forget writes down what it knows, or asks another actor for it in its setup.
 */

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
  mailbox: { capacity: 1024, overflow: 'reject' },
})
const count = (word: string): Promise<number> => counter.ask({ type: 'count', word }, { timeout: '5s' })

counter.tell({ type: 'add', text: 'The pigeon that flies home, flies home.' })
console.log('flies:', await count('flies'))

// It throws: not a text. The message that it failed with is lost, the one behind it waits for the next
// instance.
counter.tell({ type: 'add', text: 42 as never })
counter.tell({ type: 'add', text: 'home' })
console.log('home, after it failed:', await count('home'))

// Its thread is killed, as a crash would end it. Meanwhile tells are accepted and wait for the thread's next
// life.
const replaced = system.killThread('core-0')
await new Promise<void>(resolve => setImmediate(resolve))
console.log('a tell while its thread is away:', counter.tell({ type: 'add', text: 'home again' }))
await replaced
console.log('again, after its thread was replaced:', await count('again'))

const { restarts } = system.counters().total
const lives = system.threads().find(({ name }) => name === 'core-0')?.lives
console.log(`restarts of the actor: ${restarts}, lives of its thread: ${lives}`)

const report = await system.shutdown()
console.log('slow to stop:', report.slow.length)
