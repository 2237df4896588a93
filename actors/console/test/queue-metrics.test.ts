/** Metrics of the queue for many models: bounded, and totals that never move between labels. */

import type { ActorRef } from '@homing/actor'
import type { QueueMessage } from '@homing/actors/queue'
import { Metrics } from '@homing/metrics'
import t from 'tap'
import type { ConsoleArgs } from '../src/console-args.ts'
import { collectQueue } from '../src/metrics/queue-metrics.ts'

interface Row {
  served: number
  waiting: number
  refused: number
}

function world(modelsMax: number) {
  const models = new Map<string, Row>()
  const clock = { now: 0 }
  const status = () => ({
    requests: 0,
    requestsMax: 1,
    tokens: 0,
    tokensMax: 1,
    bytes: 0,
    bytesMax: 1,
    models: [...models].map(([model, { served, waiting, refused }]) => ({
      model,
      snapshot: {
        classes: [
          {
            policyClass: 'default',
            waiting: {
              requests: waiting,
              promptTokens: 10 * waiting,
              uncachedTokens: 4 * waiting,
              oldestMs: 0,
            },
            elsewhere: { requests: 0 },
            served: { requests: served, uncachedTokens: 4 * served },
            refused: { deadline: refused },
            expectedWaitMs: undefined,
          },
        ],
      },
    })),
  })
  const queue = { ask: async () => status() } as unknown as ActorRef<QueueMessage>
  const args = { queue, askMsMax: 1, modelLabels: { modelsMax, modelIdleMs: 1000 } } as ConsoleArgs
  const metrics = new Metrics()
  collectQueue(metrics, args, () => clock.now)
  const lines = async () => (await metrics.render()).split('\n').filter(line => line.includes('model='))
  const add = (model: string, change: Partial<Row> = {}) =>
    models.set(model, { served: 0, waiting: 0, refused: 0, ...models.get(model), ...change })
  return { add, clock, lines, models }
}

t.test('a few models are shown with their zeros', async t => {
  const { add, lines } = world(10)
  for (const model of ['a', 'b']) add(model)
  t.ok((await lines()).includes('homing_queue_waiting_requests{model="b",class="default"} 0'))
})

t.test('of thousands of adapters only those that are used have series', async t => {
  const { add, clock, lines, models } = world(10)
  for (let i = 0; i < 3000; i++) add(`adapter-${i}`)
  t.ok((await lines()).length < 20, `${(await lines()).length} lines before any request`)
  add('adapter-7', { served: 3, waiting: 2, refused: 1 })
  const used = await lines()
  for (const line of [
    'homing_queue_placed_requests_total{model="adapter-7",class="default"} 3',
    'homing_queue_waiting_prompt_tokens{model="adapter-7",class="default"} 20',
    'homing_queue_waiting_uncached_tokens{model="adapter-7",class="default"} 8',
    'homing_queue_refused_requests_total{model="adapter-7",class="default",reason="deadline"} 1',
  ])
    t.ok(used.includes(line), line)
  for (let i = 0; i < 3000; i++) add(`adapter-${i}`, { served: 3 + i, waiting: 0 })
  const full = await lines()
  t.ok(full.length < 11 * 10, `${full.length} lines`)
  const placed = () => full.filter(line => line.startsWith('homing_queue_placed_requests_total'))
  const sum = placed().reduce((total, line) => total + Number(line.split(' ').at(-1)), 0)
  t.equal(
    sum,
    [...models.values()].reduce((total, { served }) => total + served, 0),
    'all are counted',
  )

  // What was counted under one label stays there.
  const others = Number(/model="other".* (\d+)$/m.exec(placed().join('\n'))![1])
  clock.now = 2000
  add('adapter-2999', { served: 4000 })
  const later = (await lines()).filter(line => line.startsWith('homing_queue_placed_requests_total'))
  t.strictSame(
    later.map(line => Number(line.split(' ').at(-1))).sort((a, b) => a - b),
    [4000 - 3002, others],
  )
  t.ok(later.some(line => line.includes('adapter-2999')))
})

t.test('a queue that begins anew is counted on', async t => {
  const { add, lines } = world(10)
  add('a', { served: 5 })
  await lines()
  add('a', { served: 2 })
  t.ok((await lines()).includes('homing_queue_placed_requests_total{model="a",class="default"} 7'))
})
