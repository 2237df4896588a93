/** What a running router reports about its threads and actors, including a thread that was killed. */

import t from 'tap'
import { until, withFleet } from './fleet.ts'

interface ActorRow {
  readonly name: string
  readonly thread: string
  readonly state: string
  readonly children: readonly ActorRow[]
}

const namesOf = (rows: readonly ActorRow[]): string[] =>
  rows.flatMap(row => [row.name, ...namesOf(row.children)])

t.test('threads, actors and the last events of a killed thread are seen from outside', async t => {
  const router = ['--router-event-threads', '2']
  await withFleet({ engines: [{}], router }, async fleet => {
    const completion = { model: 'homing-sim', prompt: [...Array(100).keys()], max_tokens: 2 }
    t.equal((await fleet.send('/v1/completions', { body: completion })).status, 200)

    const { threads, actors, left_out } = (await fleet.send('/actors')).json
    t.match(
      threads.map(({ thread, state, lives }: Record<string, unknown>) => [thread, state, lives]),
      [
        ['main', 'running', 1],
        ['events-0', 'running', 1],
        ['events-1', 'running', 1],
      ],
    )
    t.equal(left_out, 0)
    t.equal(actors[0].name, 'guardian')
    const names = namesOf(actors)
    for (const name of ['indexer-0', 'indexer-1', 'directory', 'tracker', 'router', 'gateway']) {
      t.ok(names.includes(name), name)
    }
    const { text } = await fleet.send('/actors?format=text')
    t.match(text, /^main +running +life 1 +\d+ actors/m)
    t.match(text, /^├─ indexer-0 +events-0 +running +waiting 0 \(most \d+\)$/m)

    await fleet.router.system.killThread('events-0')
    const flight = (await fleet.send('/actors/flight?thread=events-0&format=text')).text
    t.match(flight, /indexer-0 handled '\w+'/)
    t.match(flight, /thread ended, life \d+, (with nothing in hand|while [\w-]+ had '\w+' in hand)/)
    await until('the thread lives again', async () => {
      const [, row] = (await fleet.send('/actors')).json.threads
      return row?.lives === 2 && row.state === 'running' ? true : undefined
    })
    const metrics = (await fleet.send('/metrics')).text
    t.match(metrics, /^homing_actor_thread_lives_total\{thread="events-0"\} 2$/m)
    t.match(metrics, /^homing_actor_thread_lives_total\{thread="events-1"\} 1$/m)
    t.match(metrics, /^homing_actor_handled_messages_total\{thread="main"\} [1-9]\d*$/m)
    t.match(metrics, /^homing_metrics_collector_failures_total 0$/m)
  })
})
