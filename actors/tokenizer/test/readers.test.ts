/** Which bodies are read where, and what the readers are told before. */

import { fileURLToPath } from 'node:url'
import { loadTokenizer, PromptTokenizer } from '@homing/tokenization'
import t from 'tap'
import { BodyReader } from '../src/body-reader.ts'
import { modelTable, readGivenTokenizers } from '../src/model-table.ts'
import type { ReaderTask } from '../src/reader-tasks.ts'
import { Readers } from '../src/readers.ts'
import { fleetOf } from './fleet.ts'

const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
const NOWHERE = '/no/such/directory'
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)

/**
 * Readers whose other thread is one reader on this one; what it was asked is noted. `refusals`: loads that
 * fail before one goes well.
 */
function start(directory: string, inlineBodyBytesMax: number, refusals = 0) {
  const asked: string[] = []
  const affinities: number[] = []
  const told = Promise.withResolvers<string>()
  const reader = new BodyReader({ promptCacheBytes: 1e6, wordTableBytes: 2 ** 20 })
  const readers = new Readers({
    threads: {
      async start() {},
      get promptCacheBytes() {
        return reader.bytes
      },
      get wordTableBytes() {
        return reader.wordTableBytes
      },
      configure: configuration => reader.configure(configuration),
      async run(task: ReaderTask, affinity?: number) {
        asked.push(task.type)
        if (task.type === 'read') affinities.push(affinity ?? 0)
        if (task.type === 'load' && refusals-- > 0) throw new Error('the thread is gone')
        return reader.run(task)
      },
    },
    inlineBodyBytesMax,
    promptCacheBytes: 1e6,
    wordTableBytes: 2 ** 20,
    loaded: new Map(),
    distrusted: new Set(),
    onLoaded: ({ tables }) => told.resolve(tables === undefined ? 'library' : 'own'),
    onLoadFailed: () => told.resolve('failed'),
  })
  readers.setModels(modelTable(fleetOf({}), readGivenTokenizers([directory])))
  const read = async (prompt: string | Int32Array) => {
    const isText = typeof prompt === 'string'
    const body = utf8(JSON.stringify({ model: 'm', ...(isText ? { prompt } : {}) }))
    const promptIds = isText ? undefined : prompt
    const task = {
      route: 'completions',
      headers: {},
      wantTokenIds: true,
      wallMs: 0,
      unaskable: undefined,
    } as const
    const outcome = await readers.read({ ...task, body, promptIds }, 1000)
    return outcome.kind === 'read' ? outcome.request.tokenIds : outcome.kind
  }
  return { readers, read, asked, affinities, loaded: told.promise }
}

t.test(
  'short bodies are read here once every model has the own encoder; the answers are the same',
  async t => {
    const tiny = await PromptTokenizer.load(TINY)
    const { read, asked, loaded } = start(TINY, 100)
    t.strictSame(asked, ['load'])
    t.strictSame(await read('hello'), tiny.encodeText('hello'), 'before it is loaded for all')
    t.equal(await loaded, 'own')
    t.strictSame(asked.splice(0), ['load', 'read'])
    t.strictSame(await read('hello you'), tiny.encodeText('hello you'))
    t.strictSame(asked.splice(0), [])
    const long = 'hello '.repeat(100)
    t.strictSame(await read(long), tiny.encodeText(long))
    t.strictSame(asked, ['read'])
  },
)

t.test('of ids beside a body four count as a byte of it', async t => {
  const { read, asked, loaded } = start(TINY, 100)
  await loaded
  asked.splice(0)
  // The body is {"model":"m"}.
  const short = Int32Array.from({ length: 4 * 87 }, (_, at) => at)
  t.strictSame(await read(short), short)
  t.strictSame(asked.splice(0), [])
  const long = Int32Array.from({ length: 4 * 87 + 1 }, (_, at) => at)
  t.strictSame(await read(long), long)
  t.strictSame(asked, ['read'])
})

t.test('prompts of ids beside a body spread over the threads, and turns of one go to the same', async t => {
  const { read, affinities, loaded } = start(TINY, 0)
  await loaded
  const idsOf = (first: number, count: number) => Int32Array.from({ length: count }, (_, at) => first + at)
  for (let first = 0; first < 64; first++) await read(idsOf(first, 300))
  t.equal(new Set(affinities.splice(0)).size, 64)
  await read(idsOf(7, 300))
  await read(idsOf(7, 3000))
  t.equal(affinities[0], affinities[1])
})

t.test('short requests that come together have the ids of their own prompts', async t => {
  const tiny = await PromptTokenizer.load(TINY)
  const { read, loaded } = start(TINY, 1000)
  await loaded
  const prompts = Array.from({ length: 20 }, (_, i) => `hello ${'you '.repeat(i)}and ${i}`)
  const ids = await Promise.all(prompts.map(read))
  t.strictSame(
    ids,
    prompts.map(prompt => tiny.encodeText(prompt)),
  )
})

t.test('with a limit of 0 every body goes to another thread', async t => {
  const { read, asked, loaded } = start(TINY, 0)
  await loaded
  await read('hello')
  t.strictSame(asked, ['load', 'read'])
})

t.test('a tokenizer that cannot be loaded is told, and its models stay with other threads', async t => {
  const { readers, read, asked, loaded } = start(NOWHERE, 100)
  t.equal(await loaded, 'failed')
  t.equal(await read('hello'), undefined)
  // It is not loaded again with each word of the fleet.
  readers.setModels(modelTable(fleetOf({}), readGivenTokenizers([NOWHERE])))
  t.strictSame(asked, ['load', 'read'])
})

t.test('a loading that failed with its thread is tried again with the next word of the fleet', async t => {
  const { readers, asked, loaded } = start(TINY, 100, 1)
  t.equal(await loaded, 'failed')
  t.strictSame(readers.paths, [])
  readers.setModels(modelTable(fleetOf({}), readGivenTokenizers([TINY])))
  t.strictSame(asked, ['load', 'load'])
  while (readers.paths.length === 0) await new Promise<void>(resolve => setImmediate(resolve))
  t.match(readers.paths, [{ path: 'own', models: ['m'] }])
})

t.test('a configuration that comes again, as a copy, leaves what is remembered', async t => {
  const reader = new BodyReader({ promptCacheBytes: 1e8, wordTableBytes: 2 ** 20 })
  const tokenizers = new Map([[TINY, await loadTokenizer(TINY)]])
  const table = modelTable(fleetOf({}), readGivenTokenizers([TINY]))
  const body = utf8(
    JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hello you '.repeat(5000) }] }),
  )
  const bytes: number[] = []
  for (let version = 1; version <= 4; version++) {
    reader.configure(structuredClone({ version, table, tokenizers, distrusted: new Set<string>() }))
    const task = {
      type: 'read',
      route: 'chat',
      headers: {},
      wantTokenIds: false,
      wallMs: 0,
      unaskable: undefined,
    } as const
    t.match(await reader.run({ ...task, body, version }), {
      kind: 'read',
      request: { tokenizedBy: 'router' },
    })
    bytes.push(reader.bytes)
  }
  t.ok(bytes[0]! > body.length)
  t.strictSame(
    bytes,
    bytes.map(() => bytes[0]),
  )
})

t.test('a reader that was told nothing yet, or something older, says so instead of guessing', async t => {
  const reader = new BodyReader({ promptCacheBytes: 0, wordTableBytes: 2 ** 20 })
  const task = {
    type: 'read',
    route: 'completions',
    body: utf8('{"prompt":"x"}'),
    headers: {},
    wantTokenIds: false,
    wallMs: 0,
    unaskable: undefined,
  } as const
  t.strictSame(await reader.run({ ...task, version: 1 }), { kind: 'unconfigured' })
  const table = modelTable(fleetOf({}), readGivenTokenizers([TINY]))
  reader.configure({ version: 1, table, tokenizers: new Map(), distrusted: new Set() })
  t.match(await reader.run({ ...task, version: 1 }), { kind: 'read' })
  t.strictSame(await reader.run({ ...task, version: 2 }), { kind: 'unconfigured' })
})
