/** A worker over HTTP, asked as a router asks it; and what its options may be. */

import t, { type Test } from 'tap'
import { BadWorkerOptionError, type GivenOutput, serveTokens, type WorkerOptions } from '../src/index.ts'

async function started(t: Test, options: Partial<WorkerOptions>) {
  const worker = await serveTokens({
    model: 'm',
    async *generate() {
      yield 1
    },
    ...options,
  })
  t.teardown(() => worker.close())
  const base = worker.url.split('?')[0]!
  const ask = (members: object, signal?: AbortSignal) =>
    fetch(`${base}/v1/tokens`, {
      method: 'POST',
      body: JSON.stringify({ token_ids: [1, 2], ...members }),
      signal: signal ?? null,
    })
  return { worker, base, ask }
}

const linesOf = async (reply: Response) =>
  (await reply.text())
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as unknown)

t.test('outputs of each form are lines, and the last one says why', async t => {
  const { ask } = await started(t, {
    async *generate({ tokenIds }): AsyncGenerator<GivenOutput> {
      yield 5
      yield tokenIds
      yield { tokenIds: [7], cachedTokens: 1 }
    },
  })
  t.strictSame(await linesOf(await ask({})), [
    { token_ids: [5] },
    { token_ids: [1, 2] },
    { token_ids: [7], cached_tokens: 1 },
    { token_ids: [], finish_reason: 'stop' },
  ])
  t.strictSame(await linesOf(await ask({ stop_conditions: { max_tokens: 2 } })), [
    { token_ids: [5] },
    { token_ids: [1], finish_reason: 'length' },
  ])
})

t.test('the generator is stopped when its client leaves, and when it has given enough', async t => {
  const ended = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const begun = Promise.withResolvers<void>()
  let number = 0
  const { worker, ask } = await started(t, {
    async *generate(_, { signal }) {
      const own = number++
      try {
        yield 1
        begun.resolve()
        while (!signal.aborted) {
          yield 1
          await new Promise(resolve => setImmediate(resolve))
        }
      } finally {
        ended[own]!.resolve()
      }
    },
  })
  const abort = new AbortController()
  const reply = await ask({}, abort.signal)
  await begun.promise
  abort.abort()
  await reply.text().catch(() => {})
  await ended[0]!.promise
  await linesOf(await ask({ stop_conditions: { max_tokens: 3 } }))
  await ended[1]!.promise
  await worker.close(60_000)
})

t.test('the generator is stopped when its client leaves before the first output', async t => {
  const begun = Promise.withResolvers<void>()
  const left = Promise.withResolvers<void>()
  const ended = Promise.withResolvers<void>()
  const { base, ask } = await started(t, {
    async *generate(_, { signal }) {
      signal.addEventListener('abort', () => left.resolve())
      try {
        begun.resolve()
        await left.promise
        yield 1
        yield 2
      } finally {
        ended.resolve()
      }
    },
  })
  const abort = new AbortController()
  const asked = ask({}, abort.signal).catch(() => {})
  await begun.promise
  abort.abort()
  await asked
  await ended.promise
  t.match(await (await fetch(`${base}/metrics`)).text(), /requests_total\{outcome="cancelled"\} 1/)
})

t.test('requests past the bound are refused, and what is no request is named', async t => {
  const gate = Promise.withResolvers<void>()
  const { ask, base } = await started(t, {
    requestsMax: 1,
    async *generate() {
      yield 1
      await gate.promise
    },
  })
  const first = await ask({})
  const full = await ask({})
  t.equal(full.status, 503)
  t.match(await full.text(), /1 requests are open, and 1 may be/)
  gate.resolve()
  await first.text()
  const bad = await ask({ token_ids: 'x' })
  t.equal(bad.status, 400)
  t.match(await bad.text(), /token_ids must be a list/)
  const elsewhere = await fetch(`${base}/v1/chat/completions`, { method: 'POST', body: '{}' })
  t.equal(elsewhere.status, 404)
  t.match(await elsewhere.text(), /this worker takes token ids, at POST \/v1\/tokens/)
})

t.test('an option that cannot be used is named', async t => {
  for (const [options, message] of [
    [{ model: '' }, /model "": use a name of 1 to 1024 characters/],
    [{ port: 70_000 }, /port "70000": use a whole number from 0 to 65535/],
    [{ requestPlane: 'udp' }, /requestPlane "udp": use http, tcp or nats/],
    [{ requestPlane: 'nats' }, /use it with nats, the addresses of the broker/],
    [{ requestPlane: 'nats', nats: ['nats://h:4222'] }, /that no other worker of its host has/],
    [{ generate: 7 }, /generate "7": use an async generator function/],
  ] as const)
    await t.rejects(started(t, options as never), {
      message,
      code: new BadWorkerOptionError('', '', '').code,
    })
})
