/** The router in a program, over simulated engines with real sockets. */

import { execFile } from 'node:child_process'
import process from 'node:process'
import { setImmediate } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { inspect, promisify } from 'node:util'
import { parseWideJson, tryBits64 } from '@homing/base'
import { bigintToHash, DEFAULT_SEED, hashBlocks } from '@homing/blocks'
import { BlockIndex, IndexReader, OverlapCounts } from '@homing/index'
import { type GenerateOutput, type GivenKvRouterSettings, KvRouter, startDemoFleet } from 'homing'
import t from 'tap'
import { assertPatternLines, PATTERNS } from '../pattern-lines.ts'

const EXACT = { maxTokens: 20, ignoreEos: true }
const WAIT_MS_MAX = 240_000

const fleet = await startDemoFleet({ demoEngines: 2, demoSpeed: 100, logLevel: 'warn' })
t.teardown(() => fleet.stop())
const { workers, model } = fleet

function start(more: Partial<GivenKvRouterSettings> = {}): Promise<KvRouter> {
  return KvRouter.start({ workers, model, logLevel: 'error', eventThreads: 1, ...more })
}

function isPlain(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

let prompts = 0
/** Tokens that no prompt before has had, one more than the blocks have. */
function newPrompt(blocks: number): readonly number[] {
  prompts++
  const length = blocks * fleet.blockSizeTokens + 1
  return Array.from({ length }, (_, at) => 20 + ((prompts * 131 + at * 7) % 1400))
}

async function all(outputs: AsyncIterable<GenerateOutput>): Promise<readonly number[]> {
  const tokens: number[] = []
  for await (const { tokenIds } of outputs) tokens.push(...tokenIds)
  return tokens
}

async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  const endMs = performance.now() + WAIT_MS_MAX
  while (!(await isSo())) {
    if (performance.now() > endMs) throw new Error(`waited in vain until ${what}`)
    await setImmediate()
  }
}

/** Resolves when nothing is booked. */
async function idle(router: KvRouter): Promise<void> {
  await until('nothing is booked', async () => {
    const [one] = newPrompt(1)
    const loads = await router.getPotentialLoads([one!])
    return loads.every(load => load.activeRequests === 0 && load.potentialPrefillTokens === 1)
  })
}

t.test('importing homing loads no HTTP server', async t => {
  const program = `
    await import('homing')
    console.log(process.moduleLoadList.filter(name => /_http_server|zeromq|undici/.test(name)).length)`
  const { NODE_OPTIONS: _, ...env } = process.env
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
    cwd: fileURLToPath(new URL('../../packages/homing', import.meta.url)),
    env,
  })
  t.equal(stdout, '0\n')
})

t.test('one router', async t => {
  // By the linear rule, choices can be told beforehand.
  const router = await start({ routerPolicy: 'linear' })
  t.teardown(() => router.close(0))

  t.test('generates exactly as many tokens as it is told, and nothing stays booked', async t => {
    const prompt = newPrompt(4)
    const stream = router.generate({
      tokenIds: prompt,
      stopConditions: EXACT,
      samplingOptions: { temperature: 0.7, topP: 0.9 },
      routerConfigOverride: { overlapScoreWeight: 2, routerTemperature: 0.5 },
    })
    t.equal(stream.place, undefined)
    const outputs: GenerateOutput[] = []
    for await (const output of stream) outputs.push(output)
    t.equal(outputs.flatMap(({ tokenIds }) => tokenIds).length, 20)
    t.equal(outputs.at(-1)!.finishReason, 'length')
    t.strictSame(stream.usage, { promptTokens: prompt.length, completionTokens: 20, cachedTokens: 0 })
    t.match(stream.place, { worker: /^127\.0\.0\.1:\d+\/0$/, overlapBlocks: 0 })
    await idle(router)
  })

  t.test('sends a request to the worker that is forced, whatever others hold', async t => {
    const prompt = newPrompt(4)
    const keys = new Map((await router.workers()).map(({ workerId, worker }) => [workerId, worker]))
    t.strictSame([...keys.keys()], [0, 1])
    for (const workerId of [1, 0, 1]) {
      const stream = router.generate({ tokenIds: prompt, workerId, stopConditions: EXACT })
      t.equal((await all(stream)).length, 20)
      t.equal(stream.place?.worker, keys.get(workerId))
    }
    t.match(await router.bestWorker(prompt, { workerId: 0 }), [0, 0])
    await idle(router)
  })

  t.test('takes an override for the one request', async t => {
    const prompt = newPrompt(10)
    await all(router.generate({ tokenIds: prompt, workerId: 1, stopConditions: EXACT }))
    await until('the index has the prompt', async () => {
      const [match] = await router.findMatchesForRequest(prompt)
      return match?.workerId === 1 && match.overlapBlocks === 10
    })
    await router.bestWorker(newPrompt(2), { requestId: 'other', workerId: 1 })
    await router.markPrefillComplete('other')
    t.strictSame(await router.bestWorker(prompt), [1, 0, 10])
    const reused = Int32Array.from(prompt)
    const asked = router.bestWorker(reused)
    reused.fill(0)
    t.strictSame(await asked, [1, 0, 10], 'the ids are those of the call')
    t.strictSame(await router.bestWorker(Uint32Array.from(prompt)), [1, 0, 10])
    const byLoad = { override: { overlapScoreWeight: 0 } }
    t.strictSame(await router.bestWorker(prompt, byLoad), [0, 0, 0], 'by load alone')
    t.strictSame(await router.bestWorkerId(prompt, byLoad), [0, 0], 'also in the old form')
    t.strictSame(await router.bestWorker(prompt), [1, 0, 10], 'and the next as before')
    await router.free('other')
    await idle(router)
  })

  t.test('books under the id of its program until it is freed', async t => {
    const prompt = newPrompt(3)
    const before = await router.getPotentialLoads(prompt)
    t.strictSame(
      before.map(load => ({ ...load, workerId: 0 })),
      Array.from({ length: 2 }, () => ({
        workerId: 0,
        dpRank: 0,
        potentialPrefillTokens: 49,
        potentialDecodeBlocks: 3,
        activeRequests: 0,
      })),
    )
    const [workerId] = await router.bestWorker(prompt, { requestId: 'a' })
    const load = async () => (await router.getPotentialLoads(prompt)).find(row => row.workerId === workerId)!
    t.match(await load(), { activeRequests: 1, potentialDecodeBlocks: 3 })
    const prefillTokens = (await load()).potentialPrefillTokens
    await router.markPrefillComplete('a')
    t.equal((await load()).potentialPrefillTokens, prefillTokens - 49)
    await router.free('a')
    t.equal((await load()).activeRequests, 0)
    await idle(router)
  })

  t.test('asks for several outputs at once, and each comes once', async t => {
    const stream = router.generate({
      tokenIds: newPrompt(1),
      stopConditions: { maxTokens: 3, ignoreEos: true },
    })
    const iterator = stream[Symbol.asyncIterator]()
    const found = await Promise.all(Array.from({ length: 6 }, () => iterator.next()))
    t.equal(found.flatMap(({ value }) => (value === undefined ? [] : [...value.tokenIds])).length, 3)
    t.ok(found.at(-1)!.done)
  })

  t.test('says with a code what cannot be done', async t => {
    const prompt = newPrompt(1)
    await router.bestWorker(prompt, { requestId: 'a' })
    await t.rejects(router.bestWorker(prompt, { requestId: 'a' }), {
      code: 'HOMING_GATEWAY_RESERVATION_EXISTS',
    })
    await router.free('a')
    await t.rejects(router.free('a'), { code: 'HOMING_GATEWAY_RESERVATION_UNKNOWN' })
    await t.rejects(router.markPrefillComplete('a'), { code: 'HOMING_GATEWAY_RESERVATION_UNKNOWN' })
    const wrong = [
      [
        { override: { overlapWeight: 1 } },
        /: override\.overlapWeight: there is no such member; known: overlapS/,
      ],
      [{ request: 'a' }, /: request: there is no such member; known: model, override, requestId/],
    ] as const
    for (const [options, message] of wrong)
      await t.rejects(router.bestWorker(prompt, options as object), {
        code: 'HOMING_LIBRARY_BAD_OPTION',
        message,
      })
    for (const [option, options] of [
      ['workerId', { workerId: Number.NaN }],
      ['override.overlapScoreWeight', { override: { overlapScoreWeight: Number.POSITIVE_INFINITY } }],
      ['override', { override: null }],
      ['workerId', { workerId: 1n }],
    ] as const)
      await t.rejects(router.bestWorker(prompt, options as object), {
        code: 'HOMING_LIBRARY_BAD_OPTION',
        message: new RegExp(`^cannot choose a worker: ${option.replace('.', '\\.')}: `),
      })
    await t.rejects(router.getPotentialLoads(prompt, { requestId: 'a' } as object), {
      code: 'HOMING_LIBRARY_BAD_OPTION',
      message: /: requestId: there is no such member; known: model, override/,
    })
    await t.rejects(router.bestWorker(prompt, { override: { routerTemperature: -1 } }), {
      code: 'HOMING_OPENAI_INVALID_REQUEST',
      message: /router_temperature -1: use a number from 0 to 1000/,
    })
    for (const tokens of [
      [],
      [1, -1],
      [0.5],
      [2 ** 32],
      new Int32Array([1, -1]),
      new Uint32Array(),
      [1n as never],
    ])
      await t.rejects(router.bestWorker(tokens), { code: 'HOMING_LIBRARY_BAD_OPTION' })
    t.throws(() => router.generate({ tokenIds: prompt, stopConditions: { max_tokens: 1 } as object }), {
      code: 'HOMING_LIBRARY_BAD_OPTION',
      message: /^cannot generate: stopConditions\.max_tokens: there is no such member; known: maxTokens/,
    })
    await t.rejects(all(router.generate({ tokenIds: prompt, model: 'another' })), {
      code: 'HOMING_LIBRARY_GENERATE_FAILED',
      details: { status: 404, reason: 'model_not_found' },
    })
    await t.rejects(all(router.generate({ tokenIds: prompt, workerId: 7 })), {
      code: 'HOMING_LIBRARY_GENERATE_FAILED',
      details: { status: 400 },
    })
    await idle(router)
  })

  t.test('refuses arguments of another type in each call, and books nothing', async t => {
    const OPTION = 'HOMING_LIBRARY_BAD_OPTION'
    const ID = 'HOMING_GATEWAY_BAD_RESERVATION_ID'
    for (const settings of [undefined, null, 7, 'abc', [], { workers, model: 7 }, { workers, model: null }])
      await t.rejects(KvRouter.start(settings as never), { code: OPTION }, inspect(settings))
    const SETTINGS = 'HOMING_CONFIG_BAD_SETTINGS'
    for (const given of [null, 7, [], { demoEngine: 1 }, { port: 8001 }])
      await t.rejects(startDemoFleet(given as never), { code: SETTINGS }, inspect(given))
    const cyclic: unknown[] = []
    cyclic.push(cyclic)
    const tokens: readonly unknown[] = [
      ...[undefined, null, 7, 'abc', {}, new Set([1]), { length: 1, 0: 1 }, new DataView(new ArrayBuffer(8))],
      ...[[null], ['1'], [1n], [Symbol('id')], cyclic, [true], [Number.NaN]],
    ]
    const options: readonly unknown[] = [null, 7, 'abc', [], () => {}]
    const members: readonly (readonly [name: string, ...values: unknown[]])[] = [
      ['model', 7, {}, ['m']],
      ['override', 7, 'abc', []],
    ]
    const pins = [
      ['workerId', '0', 0.5, -1, true, {}],
      ['dpRank', '0', 0.5, -1, [0]],
    ] as const
    const overrides: readonly object[] = [
      ...[{ overlapScoreWeight: '1' }, { routerTemperature: true }, { assumeKvReuse: 1 }],
      ...[{ trackPrefillTokens: 'false' }, { moeQuery: 3 }, { moeQuery: { layerId: '3' } }],
      ...[{ moeQuery: { layerId: 3, expertIds: 1 } }, { moeQuery: { layerId: 3, expertIds: [1n] } }],
    ]
    const each = (rows: typeof members) =>
      rows.flatMap(([name, ...values]) => values.map(value => ({ [name]: value })))
    const ofPrompt = [...options, ...each(members), ...overrides.map(override => ({ override }))]
    const ofGenerate: readonly unknown[] = [
      ...[undefined, ...options],
      ...each([members[0]!, ...pins]),
      ...overrides.map(routerConfigOverride => ({ routerConfigOverride })),
      ...each([
        ['stopConditions', 7, 'abc', [], { maxTokens: '5' }, { ignoreEos: 1 }, { stop: 7 }, { stop: [7] }],
        ['stopConditions', { stopTokenIds: 1 }, { stopTokenIds: [-1] }, { stopTokenIds: cyclic }],
        ['samplingOptions', 7, [], { temperature: '1' }, { seed: {} }, { topK: [1] }],
        ['routerConfigOverride', 7, 'abc', []],
        ['signal', 7, {}, 'abort'],
      ]),
    ]
    const refuses = async (
      call: keyof KvRouter & string,
      cases: readonly (readonly unknown[])[],
      code = OPTION,
    ) => {
      for (const given of cases) {
        // Also of those that throw at once.
        const asked = async (): Promise<unknown> =>
          (router[call] as (...given: unknown[]) => unknown).apply(router, [...given])
        await t.rejects(asked(), { code }, `${call}(${given.map(value => inspect(value)).join(', ')})`)
      }
    }
    for (const call of [
      'bestWorker',
      'bestWorkerId',
      'getPotentialLoads',
      'findMatchesForRequest',
    ] as const) {
      const pinned = call.startsWith('best') ? each(pins) : []
      await refuses(
        call,
        tokens.map(ids => [ids]),
      )
      await refuses(
        call,
        [...ofPrompt, ...pinned].map(given => [[1], given]),
      )
    }
    const ids = [7, true, {}, ['a'], Symbol('id'), () => {}, '', 'x'.repeat(257)]
    await refuses(
      'bestWorker',
      ids.map(requestId => [[1], { requestId }]),
      ID,
    )
    for (const call of ['markPrefillComplete', 'free'] as const)
      await refuses(
        call,
        [undefined, null, ...ids].map(id => [id]),
        ID,
      )
    await refuses(
      'generate',
      tokens.map(tokenIds => [{ tokenIds }]),
    )
    await refuses(
      'generate',
      ofGenerate.map(given => [isPlain(given) ? { tokenIds: [1], ...given } : given]),
    )
    await refuses('close', [['1'], [-1], [Number.NaN], [null]])
    await idle(router)
    t.match(await router.bestWorker([1]), [Number, 0, 0], 'and goes on')
  })

  t.test('dumps events that give the same overlaps in another index', async t => {
    const prompt = newPrompt(6)
    await all(router.generate({ tokenIds: prompt, workerId: 0, stopConditions: EXACT }))
    await until(
      'the index has the prompt',
      async () => (await router.findMatchesForRequest(prompt)).length > 0,
    )
    const [first, second] = await Promise.all([router.dumpEvents(), router.dumpEvents()])
    t.equal(second, first, 'two at a time')
    const index = BlockIndex.create({ capacityBytes: 2 ** 22, workerSlotsMax: 4 })
    for (const { worker_id: workerId, event } of parseWideJson(first!) as readonly DumpedEvent[]) {
      const { parent_hash: parent, blocks } = event.data.stored
      index.store(
        Number(workerId),
        parent === null ? undefined : wordsOf([parent]),
        wordsOf(blocks.map(block => block.block_hash)),
        wordsOf(blocks.map(block => block.tokens_hash)),
        blocks.length,
      )
    }
    const { local } = hashBlocks(Int32Array.from(prompt), fleet.blockSizeTokens, DEFAULT_SEED)
    const counts = new OverlapCounts()
    new IndexReader([index.memory]).overlap(local, 6, counts)
    t.strictSame(
      await router.findMatchesForRequest(prompt),
      [...counts.toMap()].map(([workerId, overlapBlocks]) => ({
        workerId,
        dpRank: 0,
        overlapBlocks,
        moeScore: 0,
        cxlAccessibleScore: 0,
      })),
    )
    t.equal(counts.blocksOf(0), 6)
  })

  t.test('a dump that is left, or is not gone on with, holds up no others', async t => {
    const isWhole = (text: string) => /^\[.*\]$/s.test(text)
    for (const leave of ['return', 'throw'] as const) {
      const left = router.dumpEventPieces()
      t.equal((await left.next()).done, false)
      await left[leave](undefined).catch(() => {})
      t.ok(isWhole(await router.dumpEvents()), leave)
    }
    const abandoned = router.dumpEventPieces()
    await abandoned.next()
    const others = Array.from({ length: 5 }, () => router.dumpEvents())
    await t.rejects(others[4]!, { code: 'HOMING_HTTP_DUMPS_BUSY' }, 'a bounded line')
    await abandoned.return()
    t.ok((await Promise.all(others.slice(0, 4))).every(isWhole))
  })

  t.test('a signal ends a request at its engine and here', async t => {
    const leaving = new AbortController()
    const stream = router.generate({
      tokenIds: newPrompt(2),
      stopConditions: { maxTokens: 100_000, ignoreEos: true },
      signal: leaving.signal,
    })
    const why = new Error('enough')
    const seen = all(
      (async function* () {
        for await (const output of stream) {
          leaving.abort(why)
          yield output
        }
      })(),
    )
    await t.rejects(seen, why)
    await t.rejects(all(router.generate({ tokenIds: [1], signal: leaving.signal })), why)
    await idle(router)
    for await (const _ of router.generate({ tokenIds: newPrompt(2), stopConditions: { maxTokens: 4000 } }))
      break
    await idle(router)
    t.match(await router.metrics(), /^homing_gateway_open_requests 0$/m)
  })
})

interface DumpedEvent {
  readonly worker_id: number | string
  readonly event: {
    readonly data: {
      readonly stored: {
        readonly parent_hash: unknown
        readonly blocks: readonly { readonly block_hash: unknown; readonly tokens_hash: unknown }[]
      }
    }
  }
}

function wordsOf(hashes: readonly unknown[]): Int32Array {
  return Int32Array.from(
    hashes.flatMap(hash => {
      const { lo, hi } = bigintToHash(tryBits64(hash)!)
      return [lo, hi]
    }),
  )
}

t.test('two routers in one process; the end of one leaves the other', async t => {
  const slow = await startDemoFleet({ demoEngines: 1, demoSpeed: 0.1, logLevel: 'warn' })
  t.teardown(() => slow.stop())
  const [one, other] = await Promise.all([start({ workers: slow.workers }), start()])
  t.teardown(() => other!.close(0))
  const long = { maxTokens: 4000, ignoreEos: true }
  const cut = one!.generate({ tokenIds: newPrompt(2), stopConditions: long })
  t.equal((await cut.next()).done, false)
  t.equal((await all(other!.generate({ tokenIds: newPrompt(2), stopConditions: EXACT }))).length, 20)
  t.strictSame(await one!.close(0), { cutRequests: 1, slowActors: [] })
  t.equal(await one!.close(), await one!.close(), 'once')
  await t.rejects(all(cut), { code: 'HOMING_LIBRARY_GENERATE_FAILED' }, 'closed while it generates')
  await t.rejects(one!.bestWorker([1]), { code: 'HOMING_LIBRARY_CLOSED' })
  t.throws(() => one!.generate({ tokenIds: [1] }), { code: 'HOMING_LIBRARY_CLOSED' })
  t.equal((await all(other!.generate({ tokenIds: newPrompt(2), stopConditions: EXACT }))).length, 20)
  await idle(other!)
})

t.test('what is wrong with the settings is one error', async t => {
  await t.rejects(KvRouter.start({ workers: ['nowhere'], ...({ port: 1, prot: 2 } as object) }), {
    code: 'HOMING_CONFIG_BAD_SETTINGS',
    faults: [
      /^prot: there is no such setting/,
      /^workers: "nowhere" is not a URL/,
      'port: it has no effect here; leave it out',
    ],
  })
})

t.test('the examples of docs/library.md print what they say', { timeout: 300_000 }, async t => {
  const { NODE_OPTIONS: _, ...env } = process.env
  const printed: Record<string, string> = {}
  // One at a time: each starts threads of its own.
  for (const name of PATTERNS) {
    const file = fileURLToPath(new URL(`../../packages/homing/examples/${name}.ts`, import.meta.url))
    const options = { timeout: 300_000, env }
    const { stdout } = await promisify(execFile)(process.execPath, [file, model, ...workers], options)
    printed[name] = stdout
  }
  assertPatternLines(t, printed as Record<(typeof PATTERNS)[number], string>)
})
