/** The memory of requests: reading returns what was kept, within its bounds. HOMING_SEED sets the seed. */

import process from 'node:process'
import { seededRandom } from '@homing/base'
import t from 'tap'
import { CHUNK_BYTES, RequestMemory } from '../../src/what-if/index.ts'
import { readKept } from '../../src/what-if/read-kept.ts'
import type { KeptRequest, WhatIfTask } from '../../src/what-if/types.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const MINUTE = 60_000

function taskOf(memory: RequestMemory, sinceMs = 0): WhatIfTask {
  return {
    kept: memory.kept,
    sinceMs,
    workers: [],
    selection: { mode: 'kv', policy: 'auto', overlapWeight: 1, temperature: 0, followsEvents: true },
    profile: undefined,
    learned: {},
    anyway: false,
    cpuShare: 1,
  }
}

function request(
  arrivedAtMs: number,
  hashes: readonly number[],
  more: Partial<KeptRequest> = {},
): KeptRequest {
  return {
    arrivedAtMs,
    inputTokens: 8 * hashes.length + 3,
    outputTokens: 5,
    blockTokens: 16,
    model: 'm',
    worker: 'w:1/0',
    predictedTokens: 16,
    cachedTokens: undefined,
    routerMs: 1.5,
    firstTokenMs: undefined,
    totalMs: 20,
    outcome: 'ok',
    attempts: 2,
    knowledge: 'text',
    sequenceHashes: Int32Array.from(hashes),
    ...more,
  }
}

t.test(
  `seed ${SEED}: what is kept is read, in order of arrival, equal blocks with equal numbers`,
  async t => {
    const random = seededRandom(SEED)
    const memory = new RequestMemory({ bytesMax: 8 * CHUNK_BYTES, ageMsMax: MINUTE })
    const given: KeptRequest[] = []
    for (let i = 0; i < 3000; i++) {
      const blocks = random.below(30)
      const group = random.below(5)
      const hashes = Array.from({ length: 2 * blocks }, (_, half) => -group * 1000 - half)
      const one = request(1000 + random.below(50_000), hashes, {
        model: `m${group}`,
        worker: `w${group}`,
        cachedTokens: group === 1 ? undefined : 16 * group,
        firstTokenMs: group === 2 ? undefined : 12.25,
        attempts: 1 + group,
        outcome: group === 4 ? 'aborted' : 'ok',
      })
      given.push(one)
      memory.keep(one, 60_000 + i)
    }
    const { requests } = readKept(taskOf(memory)).log
    const expected = given.toSorted((a, b) => a.arrivedAtMs - b.arrivedAtMs)
    t.equal(requests.length, expected.length)
    const originMs = expected[0]!.arrivedAtMs
    const hashOf = new Map<number, string>()
    const numberOf = new Map<string, number>()
    for (const [i, one] of requests.entries()) {
      const { sequenceHashes, arrivedAtMs, ...rest } = expected[i]!
      const { hashIds, timestampMs, ...others } = one
      if (timestampMs !== arrivedAtMs - originMs) t.fail(`arrival ${i}`)
      if (!others.wasTaken) t.fail(`taken ${i}`)
      const { policy: _, sessionId: __, error: ___, wasTaken: ____, ...told } = others
      if (JSON.stringify(Object.entries(told).sort()) !== JSON.stringify(Object.entries(rest).sort()))
        t.strictSame(told, rest)
      if (hashIds.length !== Math.ceil(rest.inputTokens / 16)) t.fail(`blocks ${i}`)
      for (let block = 0; block < hashIds.length; block++) {
        const [number, name] = [
          hashIds[block]!,
          `${sequenceHashes[2 * block]} ${sequenceHashes[2 * block + 1]}`,
        ]
        const isWhole = 2 * block < sequenceHashes.length
        const text = isWhole ? name : `${i} ${block}`
        if ((hashOf.get(number) ?? text) !== text) t.fail(`number ${number} is of two blocks`)
        if ((numberOf.get(text) ?? number) !== number) t.fail(`block ${text} has two numbers`)
        hashOf.set(number, text)
        numberOf.set(text, number)
      }
    }
    t.match(memory.status, { requests: 3000, refused: 0 })
  },
)

t.test('it takes no more bytes than it may, and forgets the first', async t => {
  const memory = new RequestMemory({ bytesMax: 3 * CHUNK_BYTES, ageMsMax: MINUTE })
  const hashes = Array.from({ length: 2000 }, (_, i) => i)
  for (let i = 0; i < 500; i++) {
    memory.keep(request(i, hashes), i)
    if (memory.status.bytes > 3 * CHUNK_BYTES) t.fail(`${memory.status.bytes} bytes`)
  }
  const { requests, refused, oldestMs } = memory.status
  t.ok(requests > 60 && requests < 100, `${requests} requests of 8 KiB`)
  t.equal(refused, 0)
  t.ok(oldestMs! > 390)
  const read = readKept(taskOf(memory)).log.requests
  t.equal(read.length, requests)
  memory.keep(
    request(
      1000,
      Array.from({ length: 2 ** 18 }, (_, i) => i),
    ),
    1000,
  )
  t.match(memory.status, { refused: 1 }, 'a prompt that is longer than all of it')
  t.equal(
    readKept(taskOf(memory, 495)).log.requests[0]!.timestampMs,
    0,
    'times count from the first that is asked for',
  )
})

t.test('what is too old is forgotten, and who reads is not disturbed', async t => {
  const memory = new RequestMemory({ bytesMax: 8 * CHUNK_BYTES, ageMsMax: MINUTE })
  memory.keep(request(0, [1, 2]), 0)
  const task = taskOf(memory)
  memory.keep(request(1, [3, 4]), 1)
  memory.look(MINUTE)
  t.equal(memory.status.requests, 2)
  memory.look(MINUTE + 2)
  t.match(memory.status, { requests: 0, bytes: 0, oldestMs: undefined })
  t.equal(readKept(task).log.requests.length, 1, 'what was there when it was asked')
})

t.test('with few requests, too, none is kept for much longer than it may', async t => {
  const memory = new RequestMemory({ bytesMax: 8 * CHUNK_BYTES, ageMsMax: 15 * MINUTE })
  for (let minute = 0; minute < 400; minute++) {
    memory.keep(request(minute * MINUTE, [1, 2]), minute * MINUTE)
    memory.look(minute * MINUTE)
  }
  const { requests, oldestMs } = memory.status
  t.ok(requests >= 15 && requests <= 23, `${requests} of one a minute`)
  t.equal(oldestMs, (400 - requests) * MINUTE, 'when the first of them arrived')
})

t.test('names are kept as long as their requests', async t => {
  const memory = new RequestMemory({ bytesMax: 2 * CHUNK_BYTES, ageMsMax: MINUTE })
  for (let i = 0; i < 70_000; i++) memory.keep(request(i, [], { model: `m${i}` }), i)
  t.match(memory.status, { refused: 0 })
  const names = memory.kept.chunks.map(({ texts }) => texts.length)
  t.equal(
    names.reduce((sum, count) => sum + count, 0),
    memory.status.requests + names.length,
    'a model each, and one worker',
  )
  t.equal(readKept(taskOf(memory)).log.requests.at(-1)!.model, 'm69999')
})

t.test('a question reads the last requests, as many as there is room for', async t => {
  const memory = new RequestMemory({ bytesMax: 8 * CHUNK_BYTES, ageMsMax: MINUTE })
  for (let i = 0; i < 100; i++) memory.keep(request(i, [], { inputTokens: 1_600_000, knowledge: 'none' }), i)
  const { log, leftOut } = readKept(taskOf(memory))
  t.equal(leftOut, 61, 'each has 100,000 blocks')
  t.equal(log.requests.length, 39)
  t.match(log.requests[0], { timestampMs: 0, inputTokens: 1_600_000 })
})
