/**
 * Supervised counter: an actor that fails, and what its supervisors make of that. One thread is enough here.
 *
 * The counter may be restarted twice within a minute; a third failure is that of its parent, the tally, which
 * nobody restarts. So it ends, and its watchers are told why.
 */

import { type ActorRef, createActorSystem, defineActor, type Reply, signal } from '@homing/actor'

type CounterMessage =
  | { readonly type: 'add' }
  | { readonly type: 'fail' }
  | { readonly type: 'count'; readonly reply: Reply<number> }

const counter = defineActor<CounterMessage>(
  import.meta.url,
  'counter',
)({
  // Runs at the start and at every restart: what an instance knows is in this closure, and gone with it.
  setup() {
    let count = 0
    return {
      add: () => void count++,
      fail() {
        throw new Error('I was told to')
      },
      count: ({ reply }) => reply(count),
      [signal](given) {
        if (given.type === 'beforeRestart') console.log(`  an instance that counted to ${count} is replaced`)
        if (given.type === 'stopped') console.log(`  the last instance ends: ${given.reason}`)
      },
    }
  },
})

interface TallyMessage {
  readonly type: 'counter'
  readonly reply: Reply<ActorRef<CounterMessage>>
}

const tally = defineActor<TallyMessage>(
  import.meta.url,
  'tally',
)({
  setup({ spawn }) {
    const child = spawn(counter, {
      name: 'counter',
      supervision: {
        directive: 'restart',
        max: 2,
        within: '1m',
        backoff: { min: '20ms', max: '1s', jitter: 0.2 },
        whenExhausted: 'escalate',
      },
    })
    return { counter: ({ reply }) => reply(child) }
  },
})

// 'silent', because the log would say all of this too.
const system = await createActorSystem({ logLevel: 'silent' })
const parent = system.spawn(tally, { name: 'tally' })
const ref = await parent.ask({ type: 'counter' }, { timeout: '1s' })

for (const failure of ['first', 'second']) {
  for (let i = 0; i < 3; i++) ref.tell({ type: 'add' })
  ref.tell({ type: 'fail' })
  ref.tell({ type: 'add' }) // waits for the next instance, behind the same ref
  const count = await ref.ask({ type: 'count' }, { timeout: '1s' })
  const [tree] = await system.describe()
  console.log(`${failure} failure: restarts ${tree?.children[0]?.restarts}, count ${count}`)
}

ref.tell({ type: 'fail' })
const { reason, error } = await system.whenTerminated(parent)
console.log(`third failure: the tally ends, ${reason}: ${error?.code}`)
console.log('tell answers', ref.tell({ type: 'add' }))

await system.shutdown()
