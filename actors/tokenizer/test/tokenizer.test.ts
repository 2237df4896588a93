/** The tokenizer as an actor: its pool, and engines that are asked over a network in memory. */

import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { Worker } from 'node:worker_threads'
import { createTestSystem } from '@homing/actor/testing'
import { hashBlocks, namespaceSeed } from '@homing/blocks'
import { loadTokenizer, PromptTokenizer } from '@homing/tokenization'
import { giveUpBytes, type HttpExchange, MemoryNetwork, transportCapability } from '@homing/transport'
import t, { type Test } from 'tap'
import { vocabularyAtHand } from '../../../packages/tokenization/scripts/vocabularies.ts'
import { type ReadResult, type TokenizerArgs, tokenizer } from '../src/index.ts'
import { fleetOf, type WorkerOptions } from './fleet.ts'

const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
const ENGINE = 'http://10.0.0.1:8001'
/** Of simulated time, which does not pass by itself. */
const ASK = { timeout: '10m' } as const
const TOKENIZE_MS_MAX = 5000

const SKIP_LIMITS =
  process.platform === 'linux' && spawnSync('prlimit', ['--version']).status === 0
    ? false
    : 'only Linux has prlimit(1) and /proc'

/** Of the simulated clock. */
const WAIT_MS_MAX = 60_000
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
    supervision: {
      directive: 'restart',
      max: 1,
      within: '1m',
      backoff: { min: '1ms', max: '1ms', jitter: 0 },
    },
    args: {
      threads: 1,
      tokenizers: [],
      queueMax: 100,
      promptCacheBytes: 1e7,
      wordTableBytes: 2 ** 20,
      inlineBodyBytesMax: 0,
      loaded: new Map(),
      checkEvery: 0,
      tokenizeMsMax: TOKENIZE_MS_MAX,
      ...settings,
    },
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
        waitMsMax: WAIT_MS_MAX,
      },
      ASK,
    )
  const whenStarted = () => ref.ask({ type: 'whenStarted' }, ASK)
  const serve = (onExchange: (exchange: HttpExchange) => void, port = 8001) =>
    network.transport().http.listen({ host: '10.0.0.1', port }, onExchange)
  return { system, ref, read, whenStarted, serve, threads }
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
    request: { tokenizedBy: 'engine', promptTokens: 40, unknownPromptReason: undefined },
  })
  const { local } = hashBlocks(Int32Array.from(ids(40)), 16, namespaceSeed({ cacheSalt: 's' }))
  if (result.kind === 'read') t.strictSame(result.request.localHashes, local)
})

t.test('an engine that does not tokenize leaves the text of the prompt, with the reason', async t => {
  const replies: [number, string, RegExp][] = [
    [500, '{"error":{}}', /\/tokenize answered 500/],
    [404, '', /\/tokenize answered 404/],
    [200, '{"detail":"no"}', /gave an answer that cannot be read/],
    [200, '<html></html>', /gave an answer that cannot be read/],
    [200, '{"tokens":[1.5]}', /gave an answer that cannot be read/],
  ]
  for (const [status, body, reason] of replies) {
    const { read, serve } = await start(t, {}, ASKED_ENGINE)
    await serve(answering(status, body))
    const result = await read({ model: 'm', prompt: 'hello' })
    t.match(result, {
      kind: 'read',
      request: {
        promptTokens: 2,
        tokenizedBy: 'nobody',
        textBlocksReason: reason,
        unknownPromptReason: undefined,
      },
    })
    t.match(result.kind === 'read' && result.request.textBlocksReason, /^no tokenizer directory for m; /)
  }
})

t.test('an engine that cannot be reached leaves the text of the prompt', async t => {
  const { read } = await start(t, {}, ASKED_ENGINE)
  t.match(await read({ model: 'm', prompt: 'hello' }), {
    kind: 'read',
    request: { textBlocksReason: /10\.0\.0\.1:8001\/tokenize: cannot complete POST .*ECONNREFUSED/ },
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
    request: { textBlocksReason: /\/tokenize: .*no whole answer within 5000 ms/ },
  })
})

t.test(
  'where an engine is down or at fault another one is asked, once, and within the same time',
  async t => {
    const others = { origin: ENGINE.replace('8001', '8002'), canTokenize: true }
    const { read, serve } = await start(t, {}, ASKED_ENGINE, others)
    const seen: string[] = []
    const good = await serve(answering(200, JSON.stringify({ tokens: ids(40) }), seen), 8002)
    const readMany = async () => {
      for (let i = 0; i < 12; i++)
        t.match(await read({ model: 'm', prompt: `hello ${i}` }), { request: { tokenizedBy: 'engine' } })
    }
    await readMany()
    t.equal(seen.length, 12, 'the first one does not listen')
    await serve(answering(503, '', seen))
    await readMany()
    t.ok(seen.length > 24, 'the first one is at fault, and was asked')
    await good.close(0)
    const refused = await read({ model: 'm', prompt: 'hello' })
    t.match(refused, {
      request: { tokenizedBy: 'nobody', textBlocksReason: /^no tokenizer directory for m; / },
    })
  },
)

t.test('what an engine refuses is not asked of another one', async t => {
  const others = { origin: ENGINE.replace('8001', '8002'), canTokenize: true }
  const { read, serve } = await start(t, {}, ASKED_ENGINE, others)
  const seen: string[] = []
  for (const port of [8001, 8002]) await serve(answering(400, '', seen), port)
  t.match(await read({ model: 'm', prompt: 'hello' }), { request: { textBlocksReason: /answered 400/ } })
  t.equal(seen.length, 1)
})

t.test('of three engines at fault two are asked, of one itself once', async t => {
  const engineAt = (port: number): WorkerOptions => ({
    origin: ENGINE.replace('8001', `${port}`),
    canTokenize: true,
  })
  for (const ports of [[8001], [8001, 8002, 8003]]) {
    const { read, serve } = await start(t, {}, ...ports.map(engineAt))
    const seen: string[] = []
    for (const port of ports) await serve(answering(503, '', seen), port)
    t.match(await read({ model: 'm', prompt: 'hello' }), { request: { textBlocksReason: /answered 503/ } })
    t.equal(seen.length, Math.min(2, ports.length))
  }
})

t.test('the second engine has what the first has left of the time', async t => {
  const others = { origin: ENGINE.replace('8001', '8002'), canTokenize: true }
  const { system, read, serve } = await start(t, {}, ASKED_ENGINE, others)
  const asked: HttpExchange[] = []
  const whenAsked = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  for (const port of [8001, 8002])
    await serve(exchange => {
      whenAsked[asked.length]!.resolve()
      asked.push(exchange)
    }, port)
  const result = read({ model: 'm', prompt: 'hello' })
  await whenAsked[0]!.promise
  await system.advance(TOKENIZE_MS_MAX - 1000)
  asked[0]!.writeHead(503, {})
  asked[0]!.end(utf8(''))
  await whenAsked[1]!.promise
  await system.advance(1000)
  t.match(await result, { request: { textBlocksReason: /no whole answer within 1000 ms/ } })
})

t.test('a worker that went down is not asked any more', async t => {
  const { ref, read, serve } = await start(t, {}, ASKED_ENGINE)
  const seen: string[] = []
  await serve(answering(200, '{"tokens":[1]}', seen))
  ref.tell({ type: 'fleet', fleet: fleetOf({ ...ASKED_ENGINE, state: 'down' }) })
  t.match(await read({ model: 'm', prompt: 'hello' }), {
    request: { textBlocksReason: /no worker can be asked to tokenize/ },
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

t.test('a request that waits too long for a thread is dropped; the one that is read is not', async t => {
  const { system, read, threads } = await start(t, { tokenizers: [TINY] }, {})
  await read({ model: 'm', prompt: 'hello' })
  const long = { model: 'm', prompt: 'long '.repeat(2 ** 21) }
  const [first, second, third] = [read(long), read(long), read(long)]
  await system.advance(WAIT_MS_MAX)
  for (const dropped of [third, second]) {
    t.match(await dropped, {
      kind: 'refused',
      error: { code: 'HOMING_TOKENIZER_OVERLOADED', message: /no tokenizer thread was free within 60000 ms/ },
    })
  }
  t.match(await first, { kind: 'read', request: { tokenizedBy: 'router' } })
  t.match(await read(long), { kind: 'read', request: { tokenizedBy: 'router' } })
  t.equal(threads.length, 2, 'no thread was lost: one for long bodies, one for others')
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

t.test('each of its threads runs before it says that it has started', async t => {
  const { whenStarted, threads } = await start(t, { threads: 64 }, {})
  t.equal(await whenStarted(), undefined)
  t.equal(threads.length, availableParallelism())
})

t.test('requests are read in the order in which they came', async t => {
  const { read } = await start(t, { tokenizers: [TINY] }, {})
  const order: number[] = []
  await Promise.all(ids(8).map(id => read({ model: 'm', prompt: 'hello' }).then(() => order.push(id))))
  t.strictSame(order, ids(8))
})

/** No further file can be opened from `use` on, until `give` is called. */
function openFiles(t: Test): { use(): void; give(): void } {
  const limits = spawnSync('prlimit', [
    '--pid',
    String(process.pid),
    '--nofile',
    '--output',
    'SOFT',
    '--noheadings',
  ])
  const limit = (files: string): void => {
    spawnSync('prlimit', ['--pid', String(process.pid), `--nofile=${files}:`])
  }
  const before = limits.stdout.toString().trim()
  const used: number[] = []
  const give = (): void => {
    for (const file of used.splice(0)) closeSync(file)
  }
  // A terminated thread gives its files back, and they are used up in the same turn.
  limit(String(Math.max(...readdirSync('/proc/self/fd').map(Number)) + 64))
  t.teardown(() => {
    give()
    limit(before)
  })
  return {
    use() {
      try {
        for (;;) used.push(openSync('/dev/null', 'r'))
      } catch (thrown) {
        t.equal((thrown as NodeJS.ErrnoException).code, 'EMFILE')
      }
    },
    give,
  }
}

t.test(
  'where no thread can be started requests are refused at once with the reason, and read when one can',
  { skip: SKIP_LIMITS },
  async t => {
    const { read, whenStarted, threads } = await start(t, { tokenizers: [TINY] }, {})
    t.equal(await whenStarted(), undefined)
    // The tokenizer is loaded, so that the thread has nothing else to do.
    t.match(await read({ model: 'm', prompt: 'hello' }), { kind: 'read' })
    const files = openFiles(t)
    const lost = read({ model: 'm', prompt: 'long '.repeat(200_000) })
    const waiting = ids(3).map(() => read({ model: 'm', prompt: 'hello' }))
    threads[0]!.prependListener('exit', () => files.use())
    await threads[0]!.terminate()
    t.match(await lost, { kind: 'refused', error: { code: 'HOMING_INTERNAL_UNEXPECTED' } })
    const refusal = {
      kind: 'refused',
      error: {
        code: 'HOMING_TOKENIZER_NO_THREAD',
        message:
          'cannot read the request: no tokenizer thread can be started: Worker initialization failure: EMFILE',
      },
    }
    for (const result of await Promise.all(waiting)) t.match(result, refusal, 'it waited')
    t.match(await read({ model: 'm', prompt: 'hello' }), refusal, 'it came later')
    t.match(await whenStarted(), refusal.error)
    files.give()
    t.match(await read({ model: 'm', prompt: 'hello' }), { kind: 'read', request: { tokenizedBy: 'router' } })
    t.equal(await whenStarted(), undefined)
  },
)

t.test(
  'a tokenizer that could not be opened for want of files is opened when there are some',
  { skip: SKIP_LIMITS },
  async t => {
    const { ref, read, whenStarted } = await start(t, { tokenizers: [TINY] })
    t.equal(await whenStarted(), undefined)
    const files = openFiles(t)
    files.use()
    ref.tell({ type: 'fleet', fleet: fleetOf({}) })
    t.match(await read({ model: 'm', prompt: 'hello' }), {
      request: { tokenizedBy: 'nobody', textBlocksReason: /cannot be read: EMFILE/ },
    })
    files.give()
    t.match(await read({ model: 'm', prompt: 'hello' }), { request: { tokenizedBy: 'router' } })
  },
)

async function untilTrue(
  system: ReturnType<typeof createTestSystem>,
  isTrue: () => Promise<boolean>,
): Promise<void> {
  while (!(await isTrue())) {
    await system.settle()
    await new Promise<void>(resolve => setImmediate(resolve))
  }
}

/** A body's prompt as the tiny tokenizer encodes it, as an engine would tell. */
const tinyIds = async (prompt: string): Promise<readonly number[]> => [
  ...(await PromptTokenizer.load(TINY)).encodeText(prompt),
]

t.test(
  'of prompts tokenized here some are compared with an engine, and the request does not wait',
  async t => {
    const { system, ref, read, serve } = await start(
      t,
      { tokenizers: [TINY], checkEvery: 1, inlineBodyBytesMax: 1000 },
      ASKED_ENGINE,
    )
    const seen: string[] = []
    const answered = Promise.withResolvers<void>()
    const tokens = await tinyIds('hello you')
    await serve(async exchange => {
      await answering(200, JSON.stringify({ tokens }), seen)(exchange)
      answered.resolve()
    })
    t.match(await read({ model: 'm', prompt: 'hello you' }), { request: { tokenizedBy: 'router' } })
    await answered.promise
    await system.settle()
    t.match(seen, [/^POST \/tokenize .*hello you/])
    t.match(await ref.ask({ type: 'tokenizers' }, ASK), {
      tokenizers: [{ directory: TINY, models: ['m'], path: 'own', reason: undefined }],
      checks: 1,
      differences: 0,
      checksFailed: 0,
    })
  },
)

t.test(
  'a prompt is compared although the memory of its body was given back before its turn came',
  async t => {
    const loaded = new Map([[TINY, await loadTokenizer(TINY)]])
    const { system, ref, read, serve } = await start(
      t,
      { tokenizers: [TINY], loaded, checkEvery: 1, inlineBodyBytesMax: 2 ** 17 },
      ASKED_ENGINE,
    )
    const prompt = 'hello you '.repeat(10_000)
    const tokens = await tinyIds(prompt)
    await serve(answering(200, JSON.stringify({ tokens })))
    // The thread that prepares the comparison is busy with another body.
    const busy = read({ model: 'm', prompt: 'abcdefghij'.repeat(50_000) })
    // A server reads bodies into Buffers, whose slices are views.
    const body = Buffer.from(JSON.stringify({ model: 'm', prompt }))
    const question = { type: 'read', route: 'completions', body, headers: {} } as const
    const message = { ...question, wantTokenIds: false, waitMsMax: WAIT_MS_MAX }
    t.match(await ref.ask(message, ASK), { request: { tokenizedBy: 'router' } })
    giveUpBytes(body)
    t.equal(body.length, 0)
    t.match(await busy, { request: { tokenizedBy: 'router' } })
    const status = () => ref.ask({ type: 'tokenizers' }, ASK)
    await untilTrue(system, async () => {
      const { checks, checksFailed } = await status()
      return checks + checksFailed > 0
    })
    t.match(await status(), { checks: 1, differences: 0, checksFailed: 0 })
  },
)

t.test('a tokenizer whose ids differ from an engine is not used any more: engines are asked', async t => {
  const { system, ref, read, serve } = await start(t, { tokenizers: [TINY], checkEvery: 1 }, ASKED_ENGINE)
  const seen: string[] = []
  await serve(answering(200, '{"tokens":[1,2,3]}', seen))
  t.match(await read({ model: 'm', prompt: 'hello you' }), { request: { tokenizedBy: 'router' } })
  await untilTrue(system, async () => (await ref.ask({ type: 'tokenizers' }, ASK)).differences > 0)
  t.match(await ref.ask({ type: 'tokenizers' }, ASK), {
    tokenizers: [{ path: 'engine', reason: /differ from those of an engine/ }],
    checks: 1,
  })
  const again = await read({ model: 'm', prompt: 'hello you' })
  t.match(again, { request: { tokenizedBy: 'engine', tokenIds: Int32Array.of(1, 2, 3) } })
  t.equal(seen.length, 2)

  ref.tell({ type: 'fleet', fleet: undefined as never })
  const restarted = ref.ask({ type: 'tokenizers' }, ASK)
  let isThere = false
  void restarted.then(() => {
    isThere = true
  })
  await untilTrue(system, async () => {
    await system.advance(1)
    return isThere
  })
  t.match(await restarted, { tokenizers: [], checks: 0 }, 'it has begun anew')
  ref.tell({ type: 'fleet', fleet: fleetOf(ASKED_ENGINE) })
  const afterwards = await read({ model: 'm', prompt: 'hello you' })
  t.match(afterwards, { request: { tokenizedBy: 'engine', tokenIds: Int32Array.of(1, 2, 3) } })
  t.match(await ref.ask({ type: 'tokenizers' }, ASK), { tokenizers: [{ path: 'engine' }] })
})

t.test('an engine that does not encode a prompt for a comparison changes nothing but a count', async t => {
  const faults: [number, string][] = [
    [500, '{"error":{}}'],
    [404, ''],
    [200, '<html></html>'],
    [200, '{"detail":"no"}'],
    [200, '{"tokens":[1.5]}'],
    [200, '{"tokens":"1"}'],
  ]
  const { system, ref, read, serve } = await start(t, { tokenizers: [TINY], checkEvery: 1 }, ASKED_ENGINE)
  const status = () => ref.ask({ type: 'tokenizers' }, ASK)
  let fault = 0
  const listening = await serve(exchange => answering(...faults[fault]!)(exchange))
  const untilFailed = (count: number) =>
    untilTrue(system, async () => (await status()).checksFailed === count)
  for (; fault < faults.length; fault++) {
    t.match(await read({ model: 'm', prompt: 'hello' }), { request: { tokenizedBy: 'router' } })
    await untilFailed(fault + 1)
  }
  await listening.close(0)
  t.match(await read({ model: 'm', prompt: 'hello' }), { request: { tokenizedBy: 'router' } })
  await untilFailed(faults.length + 1)
  t.match(await status(), { tokenizers: [{ path: 'own' }], checks: 0, differences: 0 })
})

t.test('one prompt is compared at a time, and one whose engine is silent is given up', async t => {
  const { system, ref, read, serve } = await start(t, { tokenizers: [TINY], checkEvery: 1 }, ASKED_ENGINE)
  const status = () => ref.ask({ type: 'tokenizers' }, ASK)
  const seen: string[] = []
  const tokens = await tinyIds('hello')
  const asked = Promise.withResolvers<void>()
  await serve(async exchange => {
    if (seen.length > 0) return answering(200, JSON.stringify({ tokens }), seen)(exchange)
    seen.push('silent')
    asked.resolve()
  })
  await read({ model: 'm', prompt: 'hello' })
  await asked.promise
  for (let i = 0; i < 3; i++)
    t.match(await read({ model: 'm', prompt: 'hello' }), { request: { tokenizedBy: 'router' } })
  await system.settle()
  t.strictSame(seen, ['silent'], 'those that are offered meanwhile are not compared')
  await system.advance(TOKENIZE_MS_MAX)
  await untilTrue(system, async () => (await status()).checksFailed === 1)
  await read({ model: 'm', prompt: 'hello' })
  await untilTrue(system, async () => (await status()).checks === 1)
  t.equal(seen.length, 2)
  t.match(await status(), { differences: 0, checksFailed: 1, tokenizers: [{ path: 'own' }] })
})

t.test(
  'a thread that dies while it loads a tokenizer or reads a body in lent memory is replaced',
  async t => {
    const found = vocabularyAtHand('gpt2')
    if ('missing' in found) return t.pass('no vocabulary', { skip: found.missing })
    const { directory } = found
    const { system, ref, read, whenStarted, threads } = await start(t, { tokenizers: [directory] })
    t.equal(await whenStarted(), undefined)
    ref.tell({ type: 'fleet', fleet: fleetOf({}) })
    await system.settle()
    await threads[0]!.terminate()
    const status = () => ref.ask({ type: 'tokenizers' }, ASK)
    // The next word of the fleet has it loaded again, by the thread that takes the place.
    await untilTrue(system, async () => {
      ref.tell({ type: 'fleet', fleet: fleetOf({}) })
      return (await status()).tokenizers[0]?.path === 'own'
    })
    const tokenizer = await PromptTokenizer.load(directory)
    // Longer than what is copied, so each lies in memory that is lent to the thread.
    const prompts = ids(6).map(id => `hello ${id} `.repeat(5000))
    const lost = read({ model: 'm', prompt: 'lost '.repeat(200_000) })
    const others = prompts.map(prompt => read({ model: 'm', prompt }))
    await threads.at(-1)!.terminate()
    t.match(await lost, { kind: 'refused', error: { code: 'HOMING_INTERNAL_UNEXPECTED' } })
    for (const [i, result] of (await Promise.all(others)).entries()) {
      t.match(result, { request: { tokenizedBy: 'router' } })
      if (result.kind === 'read') t.strictSame(result.request.tokenIds, tokenizer.encodeText(prompts[i]!))
    }
    t.equal(threads.length, 3)
  },
)

t.test('requests do not wait for a prompt of megabytes, which a thread of its own reads', async t => {
  const { ref, read, threads } = await start(t, { tokenizers: [TINY] }, {})
  t.match(await read({ model: 'm', prompt: 'hello' }), { kind: 'read' })
  t.equal(threads.length, 1)
  // One word of the text: nothing in it can be cut.
  const long = ids(2).map(id => read({ model: 'm', prompt: 'abcdefghij'.repeat(500_000) + id }))
  let isLongRead = false
  void Promise.race(long).then(() => {
    isLongRead = true
  })
  for (let i = 0; i < 20; i++)
    t.match(await read({ model: 'm', prompt: `hello ${i}` }), { request: { tokenizedBy: 'router' } })
  t.notOk(isLongRead, 'twenty were read meanwhile')
  for (const result of await Promise.all(long)) t.match(result, { request: { tokenizedBy: 'router' } })
  t.equal(threads.length, 2, 'one thread for both')
  const { promptCacheBytes } = await ref.ask({ type: 'tokenizers' }, ASK)
  t.ok(promptCacheBytes <= 1e7, `${promptCacheBytes}`)
})

t.test('where the thread of long bodies dies, only the request that it had is lost', async t => {
  const { read, threads } = await start(t, { tokenizers: [TINY] }, {})
  const byRouter = { kind: 'read', request: { tokenizedBy: 'router' } }
  t.match(await read({ model: 'm', prompt: 'hello' }), byRouter)
  t.match(await read({ model: 'm', prompt: 'long '.repeat(250_000) }), byRouter)
  t.equal(threads.length, 2)
  const lost = read({ model: 'm', prompt: 'abcdefghij'.repeat(500_000) })
  const waits = read({ model: 'm', prompt: 'longer '.repeat(200_000) })
  const short = read({ model: 'm', prompt: 'hello again' })
  const ended = once(threads[1]!, 'exit')
  await threads[1]!.terminate()
  await ended
  t.match(await lost, { kind: 'refused', error: { code: 'HOMING_INTERNAL_UNEXPECTED' } })
  t.match(await short, byRouter)
  t.match(await waits, byRouter)
  t.equal(threads.length, 3, 'it was replaced, and the other one kept')
})

t.test(
  'the words that readers keep stay within their setting, and are told with the shared tables',
  async t => {
    const wordTableBytes = 2 ** 16
    const { ref, read } = await start(t, { tokenizers: [TINY], wordTableBytes }, {})
    const status = () => ref.ask({ type: 'tokenizers' }, ASK)
    t.match(await status(), { wordTableBytes: 0 })
    // Of words that nobody has seen, some ten times as many as there is room for.
    const words = ids(20_000).map(id => `w${id.toString(36)}`)
    const before = await read({ model: 'm', prompt: words[0] })
    const few = await status()
    t.match(await read({ model: 'm', prompt: words.join(' ') }), { request: { tokenizedBy: 'router' } })
    const many = await status()
    t.ok(few.wordTableBytes > 0 && few.wordTableBytes <= many.wordTableBytes, `${few.wordTableBytes}`)
    t.ok(many.wordTableBytes <= wordTableBytes, `${many.wordTableBytes}`)
    t.equal(many.vocabularyBytes, (await loadTokenizer(TINY)).tables!.memory.byteLength)
    t.strictSame(await read({ model: 'm', prompt: words[0] }), before, 'what was forgotten is encoded anew')
  },
)

t.test('its threads end with it', async t => {
  const { system, ref, read, threads } = await start(t, { tokenizers: [TINY] }, {})
  await read({ model: 'm', prompt: 'hello' })
  const ended = once(threads[0]!, 'exit')
  await system.stop(ref)
  await ended
  t.equal(threads[0]!.threadId, -1)
})
