/** The real thread: it answers, takes its share of a core at the lowest priority, is gone afterwards, and can be stopped. */

import { readdirSync, readFileSync } from 'node:fs'
import process from 'node:process'
import { type KeptRequest, RequestMemory, type WhatIfTask } from '@homing/simulate/what-if'
import t from 'tap'
import { type ThreadWord, whatIfThreads } from '../src/index.ts'

const NICE = 18
const CPU_SHARE = 0.25

function taskOf(requests: number, more: Partial<KeptRequest> = {}): WhatIfTask {
  const memory = new RequestMemory({ bytesMax: 2 ** 26, ageMsMax: 1e9 })
  for (let i = 0; i < requests; i++) {
    const blocks = 20
    const request: KeptRequest = {
      arrivedAtMs: 20 * i,
      inputTokens: 16 * blocks,
      outputTokens: 50,
      blockTokens: 16,
      model: 'm',
      worker: `w:${i % 2}/0`,
      predictedTokens: 0,
      cachedTokens: 0,
      routerMs: 1,
      firstTokenMs: 30,
      totalMs: 500,
      outcome: 'ok',
      attempts: 1,
      knowledge: 'tokens',
      sequenceHashes: Int32Array.from({ length: 2 * blocks }, (_, half) => 1000 * i + half),
      ...more,
    }
    memory.keep(request, 20 * i + 500)
  }
  return {
    kept: memory.kept,
    sinceMs: 0,
    workers: [],
    selection: { mode: 'kv', policy: 'auto', overlapWeight: 1, temperature: 0, followsEvents: true },
    profile: 'h100-8b',
    learned: {},
    anyway: true,
    cpuShare: CPU_SHARE,
  }
}

/** Priorities of the threads of this process that are named so; Linux only. */
function priorities(name: string): number[] {
  return readdirSync('/proc/self/task').flatMap(task => {
    let stat: string
    try {
      stat = readFileSync(`/proc/self/task/${task}/stat`, 'utf8')
    } catch {
      // It ended since it was listed.
      return []
    }
    const words = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return stat.includes(`(${name})`) ? [Number(words[NICE - 2])] : []
  })
}

t.test('it answers, and takes its share of a core at most', async t => {
  const words: ThreadWord[] = []
  const startMs = performance.now()
  const { promise, resolve } = Promise.withResolvers<void>()
  let seen: number[] = []
  whatIfThreads.create({} as never).start(
    taskOf(6000),
    word => {
      words.push(word)
      // When its answer comes, the thread may be gone.
      const listed = process.platform === 'linux' ? priorities('what-if') : []
      if (listed.length > 0) seen = listed
      if (word.kind !== 'progress') resolve()
    },
    reason => t.fail(reason),
  )
  await promise
  const elapsedMs = performance.now() - startMs
  const last = words.at(-1)!
  if (last.kind !== 'answer') throw new Error(JSON.stringify(last))
  t.equal(last.answer.rows.length, 7)
  t.ok(words.length > 8, `${words.length} words`)
  const share = last.answer.cpuMs / elapsedMs
  // What comes before its first pause is not paced.
  t.ok(share < 1.3 * CPU_SHARE, `${last.answer.cpuMs} ms of ${elapsedMs} ms`)
  t.comment(`${(100 * share).toFixed(1)} % of a core`)
  if (process.platform === 'linux') {
    t.strictSame(seen, [19], 'its own priority is the lowest')
    t.not(priorities('MainThread').concat(priorities('node')).includes(19), true, 'and that of no other')
  }
})

t.test('it can be stopped wherever it is, and is silent then', async t => {
  const { promise, resolve } = Promise.withResolvers<void>()
  let isStopped = false
  const thread = whatIfThreads.create({} as never).start(
    taskOf(20_000),
    () => {
      if (isStopped) t.fail('it says something')
      resolve()
    },
    reason => t.fail(reason),
  )
  await promise
  isStopped = true
  thread.stop()
  thread.stop()
  while (process.platform === 'linux' && priorities('what-if').length > 0)
    await new Promise(resolve => setImmediate(resolve))
  t.pass('its thread is gone')
})

t.test('more blocks than a heap holds are left out, and the process lives', async t => {
  const long = {
    inputTokens: 50_000,
    cachedTokens: 48_000,
    knowledge: 'none',
    sequenceHashes: new Int32Array(),
  } as const
  const { promise, resolve } = Promise.withResolvers<ThreadWord>()
  const thread = whatIfThreads.create({} as never).start(
    { ...taskOf(3000, long), cpuShare: 1 },
    word => resolve(word),
    reason => t.fail(reason),
  )
  const first = await promise
  t.equal(first.kind, 'progress', 'all is read, and the first simulation has begun')
  thread.stop()
})

t.test('a task that cannot be answered is an error, and a broken one ends it', async t => {
  const said = Promise.withResolvers<ThreadWord>()
  whatIfThreads.create({} as never).start({ ...taskOf(10), sinceMs: 1e15 }, said.resolve, () => {})
  t.match(await said.promise, { kind: 'error', error: { code: 'HOMING_WHAT_IF_NOTHING_TO_SAY' } })
  const ended = Promise.withResolvers<string>()
  whatIfThreads
    .create({} as never)
    .start({ ...taskOf(10), kept: null } as never, () => t.fail('it says something'), ended.resolve)
  t.match(await ended.promise, /null/)
})
