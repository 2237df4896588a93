/**
 * A thread of ./memory.ts: reads new requests, for as long as it is told, and answers with
 * its gauges.
 */

import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { parentPort, workerData } from 'node:worker_threads'
import { type Random, seededRandom } from '@homing/base'
import type { LoadedTokenizer } from '@homing/tokenization'
import { BodyReader } from '../../actors/tokenizer/src/body-reader.ts'
import { hostileText } from '../../packages/tokenization/test/reference/texts.ts'

export interface MemoryThreadData {
  /** Undefined: the thread has no tokenizer. */
  readonly loaded: LoadedTokenizer | undefined
  readonly wordTableBytes: number
  readonly promptCacheBytes: number
  readonly seed: number
}

export interface MemoryGauge {
  readonly requests: number
  readonly tokens: number
  readonly wordTableBytes: number
  readonly promptCacheBytes: number
  /** The most after any request so far. */
  readonly wordTableBytesMost: number
  readonly promptCacheBytesMost: number
  /** Of heap and buffers, after a collection. */
  readonly heldBytes: number
}

const TURNS = 6
const WORDS_MAX = 3000
const NAMES = 'Zürich São Москва 東京 서울 नई दिल्ली القاهرة'.split(' ')

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
const { loaded, wordTableBytes, promptCacheBytes, seed } = workerData as MemoryThreadData
const random = seededRandom(seed)
const reader = new BodyReader({ wordTableBytes, promptCacheBytes })
let requests = 0
let tokens = 0
let wordTableBytesMost = 0
let promptCacheBytesMost = 0

if (loaded !== undefined) {
  const { directory } = loaded
  const entry = {
    name: 'm',
    loraName: undefined,
    base: 'm',
    tokenizerDirectory: directory,
    dialect: 'vllm',
    blockSizeTokens: 16,
    tokenizeOrigins: [],
    isDefault: true,
  } as const
  reader.configure({
    version: 1,
    table: new Map([['m', entry]]),
    tokenizers: new Map([[directory, loaded]]),
    distrusted: new Set(),
  })
  await read([{ role: 'user', content: 'hello' }])
}
answer()
parentPort!.on('message', async (ms: number) => {
  const until = performance.now() + ms
  do {
    await converse()
  } while (performance.now() < until)
  answer()
})

async function converse(): Promise<void> {
  const messages: object[] = []
  for (let turn = 0; turn < TURNS; turn++) {
    messages.push({ role: 'user', content: newText() }, { role: 'assistant', content: newText() })
    await read(messages)
  }
}

async function read(messages: readonly object[]): Promise<void> {
  const outcome = await reader.run({
    type: 'read',
    route: 'chat',
    body: new TextEncoder().encode(JSON.stringify({ model: 'm', messages })),
    headers: {},
    wantTokenIds: false,
    version: 1,
    wallMs: 0,
    unaskable: undefined,
  })
  if (outcome.kind !== 'read' || outcome.request.tokenizedBy !== 'router')
    throw new Error(`a request was not tokenized: ${JSON.stringify(outcome).slice(0, 500)}`)
  requests++
  tokens += outcome.request.promptTokens
  wordTableBytesMost = Math.max(wordTableBytesMost, reader.wordTableBytes)
  promptCacheBytesMost = Math.max(promptCacheBytesMost, reader.bytes)
}

function newText(): string {
  const words = Array.from({ length: 1 + random.below(WORDS_MAX) }, () => newWord(random))
  // A surrogate alone has no tokens.
  return words.join(' ').toWellFormed()
}

function newWord(from: Random): string {
  switch (from.below(24)) {
    case 0:
      return NAMES[from.below(NAMES.length)]! + from.below(1e6)
    case 1:
      return String(from.below(1e9))
    case 2:
      return `${syllables(from, 2)}_${syllables(from, 2)}(${syllables(from, 1)}) {\n`
    case 3:
      return from.below(20) === 0 ? hostileText(from).slice(0, 200) : '— …'
    default:
      return syllables(from, 1 + from.below(5))
  }
}

function syllables(from: Random, count: number): string {
  let word = ''
  for (let i = 0; i < count; i++)
    word += 'bcdfghjklmnprstvwz'[from.below(18)]! + 'aeiouy'[from.below(6)]! + 'nrst'.charAt(from.below(8))
  return word
}

/** Heap and buffers of this thread, shared memory left out. */
function heldBytes(): number {
  collect()
  const { used_heap_size, external_memory } = getHeapStatistics()
  return used_heap_size + external_memory
}

function answer(): void {
  parentPort!.postMessage({
    requests,
    tokens,
    wordTableBytes: reader.wordTableBytes,
    promptCacheBytes: reader.bytes,
    wordTableBytesMost,
    promptCacheBytesMost,
    heldBytes: heldBytes(),
  } satisfies MemoryGauge)
}
