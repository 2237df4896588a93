/** Engines that tokenize, for want of a tokenizer here or to compare. */

import { hashBlocks, namespaceSeed } from '@homing/blocks'
import { loadTokenizer, PromptTokenizer } from '@homing/tokenization'
import { giveUpBytes, type HttpExchange } from '@homing/transport'
import t, { type Test } from 'tap'
import type { ReadResult, TokenizerArgs } from '../src/index.ts'
import { fleetOf, type WorkerOptions } from './fleet.ts'
import {
  ASK,
  HEDGE_MS,
  ids,
  start,
  TINY,
  TOKENIZE_MS_MAX,
  untilTrue,
  utf8,
  WAIT_MS_MAX,
} from './tokenizer-world.ts'

const ENGINE = 'http://10.0.0.1:8001'
const ASKED_ENGINE: WorkerOptions = { origin: ENGINE, canTokenize: true }

/** Answers every request with this. */
function answering(status: number, body: string, seen: string[] = []) {
  return async (exchange: HttpExchange): Promise<void> => {
    const asked = await exchange.readBody(1_000_000)
    seen.push(`${exchange.method} ${exchange.path} ${new TextDecoder().decode(asked)}`)
    exchange.writeHead(status, { 'content-type': 'application/json' })
    exchange.end(utf8(body))
  }
}

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
  const { system, read, serve } = await start(t, { tokenizeHedgeMs: 0 }, ASKED_ENGINE, others)
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

/** Engines at three ports; a question to one that is silent resolves `asked`, and waits. */
async function threeEngines(t: Test, settings: Partial<TokenizerArgs> = {}) {
  const ports = [8001, 8002, 8003]
  const workers = ports.map(port => ({ origin: ENGINE.replace('8001', `${port}`), canTokenize: true }))
  const world = await start(t, settings, ...workers)
  const state = {
    silent: new Set<number>(),
    questions: new Map(ports.map(port => [port, 0])),
    asked: Promise.withResolvers<number>(),
  }
  const tokens = answering(200, JSON.stringify({ tokens: ids(40) }))
  for (const port of ports)
    await world.serve(async exchange => {
      state.questions.set(port, state.questions.get(port)! + 1)
      if (!state.silent.has(port)) return tokens(exchange)
      state.asked.resolve(port)
    }, port)
  /** Reads until a silent engine has been asked; resolves with the read that waits for it. */
  const readUntilAsked = async (): Promise<{ readonly result: Promise<ReadResult> }> => {
    state.asked = Promise.withResolvers()
    for (;;) {
      const result = world.read({ model: 'm', prompt: 'hello' })
      const first = await Promise.race([result, state.asked.promise])
      if (typeof first === 'number') return { result }
      t.match(first, { request: { tokenizedBy: 'engine' } })
    }
  }
  const status = () => world.ref.ask({ type: 'tokenizers' }, ASK)
  return { ...world, ...state, state, status, readUntilAsked }
}

const BY_ENGINE = { request: { tokenizedBy: 'engine' } }
const prompt = { model: 'm', prompt: 'hello' }

t.test('a silent engine costs one request the hedge, and the others nothing', async t => {
  const { system, read, state, status, readUntilAsked } = await threeEngines(t)
  state.silent.add(8001)
  const { result } = await readUntilAsked()
  await system.advance(HEDGE_MS)
  t.match(await result, BY_ENGINE, 'another engine was asked as well')
  t.match(await status(), { hedges: 1, setAside: [] })
  await system.advance(HEDGE_MS)
  t.match(await status(), { setAside: ['worker-0'] }, 'it had its last chance')
  for (let i = 0; i < 12; i++) t.match(await read(prompt), BY_ENGINE)
  t.equal(state.questions.get(8001), 1)
  t.match(await status(), { hedges: 1 })
})

t.test(
  'an engine that is set aside is tried beside another one, ever more rarely, until it answers',
  async t => {
    const { system, read, state, status, readUntilAsked } = await threeEngines(t)
    state.silent.add(8002)
    const { result } = await readUntilAsked()
    await system.advance(2 * HEDGE_MS)
    t.match(await result, BY_ENGINE)
    for (const asideMs of [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]) {
      const { questions } = state
      const before = questions.get(8002)!
      await system.advance(asideMs - 1)
      t.match(await read(prompt), BY_ENGINE)
      t.equal(questions.get(8002), before, `not within ${asideMs} ms`)
      await system.advance(1)
      t.match([await read(prompt), await read(prompt)], [BY_ENGINE, BY_ENGINE], 'without time passing')
      t.equal(questions.get(8002), before + 1)
      await system.advance(HEDGE_MS)
    }
    t.match(await status(), { hedges: 1, setAside: ['worker-1'] })
    state.silent.clear()
    await system.advance(60_000)
    t.match(await read(prompt), BY_ENGINE)
    await system.settle()
    t.match(await status(), { setAside: [] })
  },
)

t.test('two silent engines of three cost one request two hedges', async t => {
  const { system, state, status, readUntilAsked } = await threeEngines(t)
  state.silent.add(8001).add(8003)
  for (let round = 0; (await status()).setAside.length < 2; round++) {
    const { result } = await readUntilAsked()
    await system.advance(2 * HEDGE_MS)
    t.match(await result, BY_ENGINE)
    await system.advance(2 * HEDGE_MS)
    t.ok(round < 2)
  }
})

t.test('a silent engine that is the only one costs a request the whole time once', async t => {
  const { system, ref, read, serve } = await start(t, {}, ASKED_ENGINE)
  const status = () => ref.ask({ type: 'tokenizers' }, ASK)
  let isSilent = true
  let asked = Promise.withResolvers<void>()
  await serve(exchange => {
    asked.resolve()
    return isSilent ? undefined : void answering(200, '{"tokens":[1,2]}')(exchange)
  })
  const first = read(prompt)
  await asked.promise
  await system.advance(TOKENIZE_MS_MAX - 1000)
  asked = Promise.withResolvers()
  const second = read(prompt)
  await asked.promise
  await system.advance(1000)
  const byText = (reason: RegExp) => ({ request: { tokenizedBy: 'nobody', textBlocksReason: reason } })
  t.match(await first, byText(/no whole answer within 5000 ms/))
  t.match(await second, byText(/no whole answer within 1000 ms/), 'it was silent for as long')
  t.match(await status(), { setAside: ['worker-0'], hedges: 0 })
  t.match(await read(prompt), byText(/did not answer in time before; it is asked again in 1000 ms/))

  await system.advance(1000)
  asked = Promise.withResolvers()
  const trial = read(prompt)
  await asked.promise
  t.match(await read(prompt), byText(/did not answer in time before/), 'one at a time')
  await system.advance(HEDGE_MS)
  t.match(await trial, byText(/is still silent/))
  await system.advance(TOKENIZE_MS_MAX)
  isSilent = false
  await system.advance(2000)
  t.match(await read(prompt), BY_ENGINE)
  t.match(await status(), { setAside: [] })
})

t.test('engines that are all slow are not asked the more for it', async t => {
  const { system, ref, read, serve } = await start(t, {}, ASKED_ENGINE, {
    origin: ENGINE.replace('8001', '8002'),
    canTokenize: true,
  })
  const held: HttpExchange[] = []
  let asked = Promise.withResolvers<void>()
  for (const port of [8001, 8002])
    await serve(exchange => {
      held.push(exchange)
      asked.resolve()
    }, port)
  const hedgesOf = async (): Promise<number> => (await ref.ask({ type: 'tokenizers' }, ASK)).hedges
  for (let i = 0; i < 40; i++) {
    asked = Promise.withResolvers()
    const result = read(prompt)
    await asked.promise
    await system.advance(HEDGE_MS + 20)
    const [first, second] = held.splice(0)
    await answering(200, '{"tokens":[1,2]}')(first!)
    t.match(await result, BY_ENGINE)
    // Each of them takes as long.
    await system.advance(HEDGE_MS)
    if (second !== undefined) await answering(200, '{"tokens":[1,2]}')(second)
    await system.settle()
  }
  const hedges = await hedgesOf()
  t.ok(hedges > 0 && hedges < 20, `hedges: ${hedges}`)
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
