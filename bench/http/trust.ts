/** What a router knows of the caches of its workers, as it says itself. */

import assert from 'node:assert/strict'

const TRUST_MS_MAX = 30_000
const LOOK_MS = 20

/** Resolves once the router at `url` knows exactly what at least `count` worker keys have cached. */
export async function untilExact(url: string, count: number): Promise<void> {
  const endsAt = performance.now() + TRUST_MS_MAX
  for (;;) {
    const { workers } = (await (await fetch(`${url}/workers`)).json()) as {
      workers: readonly { worker_keys: readonly { trust: string; trust_reason: string }[] }[]
    }
    const keys = workers.flatMap(({ worker_keys }) => worker_keys)
    const late = keys.find(({ trust }) => trust !== 'exact')
    if (keys.length >= count && late === undefined) return
    assert.ok(
      performance.now() < endsAt,
      `cannot measure the router: a worker key is ${late?.trust}: ${late?.trust_reason}`,
    )
    // Between questions, not instead of an event: /workers is all that the router tells.
    await new Promise(done => setTimeout(done, LOOK_MS))
  }
}
