/**
 * Memory of a router whose workers come and go: after hundreds of joins, drains and removals under load the
 * objects on its threads are as many as they were. HOMING_WORKERS_ROUNDS sets how many hundreds: 400 with 2
 * rounds; `.ci/run` takes 3.
 */

import process from 'node:process'
import t from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { RouterClient, startEngines, startProcess, until } from './fleet.ts'

/**
 * One of these must end where it began. A leak grows in each stretch; memory that is kept for a while grows
 * only in some, and on a busy machine in several one after the other.
 */
const STRETCHES_MAX = 8
const STRETCH_ROUNDS = Number(process.env['HOMING_WORKERS_ROUNDS'] ?? 2)
const CHANGES = 200
const CLIENTS = 1
/** Different prompts. The router keeps the prompts that it has read, so they must repeat. */
const PROMPTS = 20
/** After these everything is there that is made once. */
const WARM_ROUNDS = 1
/** What a worker that came and went may leave behind: less than any record of it. */
const LEFT_BYTES_MAX = 512
const LEFT_OBJECTS_MAX = 2
const QUIET_OBJECTS_MAX = 300
const LOOKS_MAX = 2

const prompt = (seed: number): number[] =>
  Array.from({ length: 64 }, (_, at) => 40 + ((seed * 31 + at * 7) % 80))

t.test('memory is back where it was after hundreds of workers came and went under load', async t => {
  const { engines, stop } = await startEngines([{}, {}, {}, {}])
  t.teardown(stop)
  const [resident, ...guests] = engines
  const router = await startProcess(
    'router',
    [
      ...['--host', '127.0.0.1', '--port', '0', '--router-event-threads', '2', '--tokenizer-threads', '1'],
      ...['--log-level', 'error', '--decisions-kept', '20', '--worker', resident!.url],
    ],
    { tellsHeap: true },
  )
  t.teardown(() => router.kill('SIGKILL'))
  const client = new RouterClient(router.url)
  await client.trusted('exact')
  const faults: string[] = []
  const changed = async (): Promise<void> => {
    let isOver = false
    const clients = Array.from({ length: CLIENTS }, async (_, number) => {
      for (let i = number; !isOver; i++) {
        const body = { model: MODEL, prompt: prompt(i % PROMPTS), max_tokens: 2 }
        const { status, text } = await client.send('/v1/completions', { body })
        if (status !== 200) faults.push(text)
      }
    })
    for (let change = 0; change < CHANGES; change++) {
      const { url } = guests[change % guests.length]!
      const id = url.slice('http://'.length)
      const { status, text } = await until('the one before has left', async () => {
        const answer = await client.send('/workers', { body: { url } })
        return answer.status === 409 ? undefined : answer
      })
      if (status !== 201) faults.push(text)
      const gone =
        change % 2 === 0
          ? await client.send(`/workers/${id}/drain`, { method: 'POST' })
          : await client.send(`/workers/${id}`, { method: 'DELETE' })
      if (gone.status >= 300) faults.push(gone.text)
    }
    isOver = true
    await Promise.all(clients)
    await until('all have left', async () => ((await client.workers()).length === 1 ? true : undefined))
    await client.drained()
  }
  for (let round = 0; round < WARM_ROUNDS; round++) await changed()
  // What waits for a time limit, such as a connection that is kept, goes by itself.
  const quiet = async () => {
    let last = await router.heap()
    for (let look = 0; look < LOOKS_MAX; look++) {
      const next = await router.heap()
      const isQuiet = Math.abs(next.objects - last.objects) < QUIET_OBJECTS_MAX
      last = next
      if (isQuiet) break
    }
    return last
  }
  const workers = STRETCH_ROUNDS * CHANGES
  const stretch = async () => {
    const before = await quiet()
    for (let round = 0; round < STRETCH_ROUNDS; round++) await changed()
    const after = await quiet()
    t.ok(before.threads >= 3, 'main and two event threads')
    const objects = after.objects - before.objects
    const bytes = after.bytes - before.bytes
    t.comment(
      `of ${workers} workers ${objects} objects and ${bytes} bytes are left; ` +
        `on ${before.threads} threads there were ${before.objects}, and ${before.bytes}`,
    )
    return { objects, bytes }
  }
  const isKept = ({ objects, bytes }: { objects: number; bytes: number }): boolean =>
    objects < LEFT_OBJECTS_MAX * workers && bytes < LEFT_BYTES_MAX * workers
  const left = [await stretch()]
  while (!isKept(left.at(-1)!) && left.length < STRETCHES_MAX) left.push(await stretch())
  t.ok(isKept(left.at(-1)!), `of ${workers} workers each time ${JSON.stringify(left)} are left`)
  t.strictSame(faults, [])
})
