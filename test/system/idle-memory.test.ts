/** Memory of a router without work: what its threads took to load themselves is given back. */

import t from 'tap'
import { send, startEngines, startProcess, until } from './fleet.ts'

/** Free room in the heap of an idle thread. Right after the start it is 10 to 13 MB. */
const IDLE_FREE_BYTES_MAX = 7e6

const HEAPS = /^homing_actor_heap_(resident|used)_bytes\{thread="([^"]+)"\} (\d+)$/gm

t.test('threads that have become idle keep little room for new objects', async t => {
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const router = await startProcess('router', [
    ...['--host', '127.0.0.1', '--port', '0', '--router-event-threads', '2', '--tokenizer-threads', '1'],
    ...['--log-level', 'error', '--worker', engines[0]!.url],
  ])
  t.teardown(() => router.kill('SIGKILL'))
  let free: readonly (readonly [thread: string, bytes: number])[] = []
  await until(
    'their heaps are small',
    async () => {
      const { text } = await send(router.url, '/metrics')
      const heaps = new Map<string, Record<string, number>>()
      for (const [, kind, thread, bytes] of text.matchAll(HEAPS))
        heaps.set(thread!, { ...heaps.get(thread!), [kind!]: Number(bytes) })
      // Main answers these questions, so it is not idle.
      heaps.delete('main')
      free = Array.from(heaps, ([thread, { resident, used }]) => [thread, resident! - used!] as const)
      return free.length === 3 && free.every(([, bytes]) => bytes <= IDLE_FREE_BYTES_MAX) ? true : undefined
    },
    { seen: () => free },
  )
  t.comment(`free bytes by thread: ${JSON.stringify(free)}`)
})
