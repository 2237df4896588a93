/** The tokenizer as an actor: its pool, and engines that are asked over a network in memory. */

import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { Worker } from 'node:worker_threads'
import { createTestSystem } from '@homing/actor/testing'
import { hashBlocks, namespaceSeed } from '@homing/blocks'
import { PromptTokenizer } from '@homing/tokenization'
import { type HttpExchange, MemoryNetwork, transportCapability } from '@homing/transport'
import t, { type Test } from 'tap'
import { type ReadResult, type TokenizerArgs, tokenizer } from '../src/index.ts'
import { fleetOf, type WorkerOptions } from './fleet.ts'

const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
const ENGINE = 'http://10.0.0.1:8001'
/** Of simulated time, which does not pass by itself. */
const ASK = { timeout: '10m' } as const
const TOKENIZE_MS_MAX = 5000

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)
const ids = (count: number): number[] => Array.from({ length: count }, (_, id) => id)

async function start(t: Test, settings: Partial<TokenizerArgs>, ...workers: WorkerOptions[]) {
  // The network must live on the clock of the system that it is given to.
  const { clock } = createTestSystem()
  const network = new MemoryNetwork({ clock })
  const threads: Worker[] = []
  const onWorker = (thread: Worker): void => void threads.push(thread)
  process.on('worker', onWorker)
  const system = createTestSystem({ clock, provide: [[transportCapability, network.transport()]] })
  t.teardown(async () => {
    process.off('worker', onWorker)
    await system.shutdown()
  })
  const ref = system.spawn(tokenizer, {
    name: 'tokenizer',
    args: { threads: 1, tokenizers: [], queueMax: 100, tokenizeMsMax: TOKENIZE_MS_MAX, ...settings },
  })
  ref.tell({ type: 'fleet', fleet: fleetOf(...workers) })
  await system.settle()
  const read = (body: object): Promise<ReadResult> =>
    ref.ask(
      {
        type: 'read',
        route: 'messages' in body ? 'chat' : 'completions',
        body: utf8(JSON.stringify(body)),
        headers: {},
        wantTokenIds: true,
      },
      ASK,
    )
  const serve = (onExchange: (exchange: HttpExchange) => void) =>
    network.transport().http.listen({ host: '10.0.0.1', port: 8001 }, onExchange)
  return { system, ref, read, serve, threads }
}

/** Answers every request with this. */
function answering(status: number, body: string, seen: string[] = []) {
  return async (exchange: HttpExchange): Promise<void> => {
    const asked = await exchange.readBody(1_000_000)
    seen.push(`${exchange.method} ${exchange.path} ${new TextDecoder().decode(asked)}`)
    exchange.writeHead(status, { 'content-type': 'application/json' })
    exchange.end(utf8(body))
  }
}

const ASKED_ENGINE: WorkerOptions = { origin: ENGINE, canTokenize: true }

t.test('a prompt is tokenized on a thread of the pool', async t => {
  const { read, threads } = await start(t, { tokenizers: [TINY] }, {})
  const result = await read({ model: 'm', prompt: 'hello hello' })
  const expected = (await PromptTokenizer.load(TINY)).encodeText('hello hello')
  t.match(result, { kind: 'read', request: { model: 'm', tokenizedBy: 'router' } })
  if (result.kind === 'read') t.strictSame([...(result.request.tokenIds ?? [])], [...expected])
  t.equal(threads.length, 1)
})

t.test('what cannot be read is refused with the field at fault', async t => {
  const { read } = await start(t, { tokenizers: [TINY] }, {})
  t.match(await read({ model: 'm', messages: 'no list' }), {
    kind: 'refused',
    error: { code: 'HOMING_OPENAI_INVALID_REQUEST' },
    param: 'messages',
  })
})

t.test('without a tokenizer an engine is asked, in the words of the client', async t => {
  const { read, serve } = await start(t, {}, ASKED_ENGINE)
  const seen: string[] = []
  await serve(answering(200, JSON.stringify({ count: 40, max_model_len: 9, tokens: ids(40) }), seen))
  const result = await read({ messages: [{ role: 'user', content: 'hi' }], cache_salt: 's' })
  t.strictSame(seen, ['POST /tokenize {"model":"m","messages":[{"role":"user","content":"hi"}]}'])
  t.match(result, {
    kind: 'read',
    request: { tokenizedBy: 'engine', promptTokens: 40, unknownPrompt: undefined },
  })
  const { local } = hashBlocks(Int32Array.from(ids(40)), 16, namespaceSeed({ cacheSalt: 's' }))
  if (result.kind === 'read') t.strictSame(result.request.localHashes, local)
})

t.test('an engine that does not tokenize leaves the text of the prompt, with the reason', async t => {
  const replies: [number, string, RegExp][] = [
    [500, '{"error":{}}', /\/tokenize answered 500/],
    [404, '', /\/tokenize answered 404/],
    [200, '{"detail":"no"}', /answered what cannot be read/],
    [200, '<html></html>', /answered what cannot be read/],
    [200, '{"tokens":[1.5]}', /answered what cannot be read/],
  ]
  for (const [status, body, reason] of replies) {
    const { read, serve } = await start(t, {}, ASKED_ENGINE)
    await serve(answering(status, body))
    const result = await read({ model: 'm', prompt: 'hello' })
    t.match(result, {
      kind: 'read',
      request: { promptTokens: 2, tokenizedBy: 'nobody', textBlocks: reason, unknownPrompt: undefined },
    })
    t.match(result.kind === 'read' && result.request.textBlocks, /^no tokenizer directory for m; /)
  }
})

t.test('an engine that cannot be reached leaves the text of the prompt', async t => {
  const { read } = await start(t, {}, ASKED_ENGINE)
  t.match(await read({ model: 'm', prompt: 'hello' }), {
    kind: 'read',
    request: { textBlocks: /10\.0\.0\.1:8001\/tokenize: cannot complete POST .*ECONNREFUSED/ },
  })
})

t.test('an engine that takes too long leaves the text of the prompt', async t => {
  const { system, read, serve } = await start(t, {}, ASKED_ENGINE)
  const asked = Promise.withResolvers<void>()
  await serve(() => asked.resolve())
  const result = read({ model: 'm', prompt: 'hello' })
  await asked.promise
  await system.advance(TOKENIZE_MS_MAX)
  t.match(await result, {
    kind: 'read',
    request: { textBlocks: /\/tokenize: .*no whole answer within 5000 ms/ },
  })
})

t.test('a worker that went down is not asked any more', async t => {
  const { ref, read, serve } = await start(t, {}, ASKED_ENGINE)
  const seen: string[] = []
  await serve(answering(200, '{"tokens":[1]}', seen))
  ref.tell({ type: 'fleet', fleet: fleetOf({ ...ASKED_ENGINE, state: 'down' }) })
  t.match(await read({ model: 'm', prompt: 'hello' }), {
    request: { textBlocks: /no worker can be asked to tokenize/ },
  })
  t.strictSame(seen, [])
})

t.test('one request more than may wait is refused; those that wait are read', async t => {
  const { read } = await start(t, { tokenizers: [TINY], queueMax: 2 }, {})
  // One is with the thread, two wait.
  const results = await Promise.all(ids(4).map(() => read({ model: 'm', prompt: 'hello' })))
  t.strictSame(
    results.map(result => (result.kind === 'read' ? result.request.tokenizedBy : result.error.code)),
    ['router', 'router', 'router', 'HOMING_TOKENIZER_OVERLOADED'],
  )
})

t.test('a thread that dies takes the request it had, and no other', async t => {
  const { read, threads } = await start(t, { tokenizers: [TINY] }, {})
  await read({ model: 'm', prompt: 'hello' })
  const lost = read({ model: 'm', prompt: 'long '.repeat(200_000) })
  const others = ids(5).map(() => read({ model: 'm', prompt: 'hello' }))
  const ended = once(threads[0]!, 'exit')
  await threads[0]!.terminate()
  await ended
  t.match(await lost, { kind: 'refused', error: { code: 'HOMING_INTERNAL_UNEXPECTED' } })
  t.strictSame(
    (await Promise.all(others)).map(result => (result.kind === 'read' ? result.request.tokenizedBy : result)),
    ['router', 'router', 'router', 'router', 'router'],
  )
  t.equal(threads.length, 2, 'the thread was replaced')
})

t.test('the pool never has more threads than the machine has cores', async t => {
  const { read, threads } = await start(t, { tokenizers: [TINY], threads: 64 }, {})
  await Promise.all(ids(20).map(() => read({ model: 'm', prompt: 'hello' })))
  t.ok(threads.length <= availableParallelism())
})

t.test('its threads end with it', async t => {
  const { system, ref, read, threads } = await start(t, { tokenizers: [TINY] }, {})
  await read({ model: 'm', prompt: 'hello' })
  const ended = once(threads[0]!, 'exit')
  await system.stop(ref)
  await ended
  t.equal(threads[0]!.threadId, -1)
})
