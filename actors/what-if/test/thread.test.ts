/**
 * The real thread of a question: it answers, takes its share of a core at the lowest priority, is gone
 * afterwards, and can be stopped.
 */

import { readdirSync, readFileSync } from 'node:fs'
import process from 'node:process'
import { type ActorRef, type ActorSystem, createActorSystem, type Terminated } from '@homing/actor'
import { createProbe } from '@homing/actor/testing'
import { type KeptRequest, RequestMemory, type WhatIfTask } from '@homing/simulate/what-if'
import t, { type Test } from 'tap'
import { type QuestionSaid, type QuestionWord, question } from '../src/question.ts'

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

/** A question on a thread of its own, and what it says until its end. */
class Asked {
  readonly ref: ActorRef<never>
  readonly words: QuestionWord[] = []
  readonly #probe: ReturnType<typeof createProbe<QuestionSaid>>

  constructor(system: ActorSystem, task: WhatIfTask) {
    this.#probe = createProbe(system, 'what-if')
    this.ref = system.spawn(question, {
      name: 'question',
      thread: { dedicated: { heapMb: 1024, hungAfter: '10m' } },
      args: { task, run: 'r', whatIf: this.#probe.ref },
      shutdown: 'kill',
    })
    this.#probe.watch(this.ref)
  }

  async next(): Promise<QuestionWord> {
    const { word } = await this.#probe.next('60s')
    this.words.push(word)
    return word
  }

  get waiting(): number {
    return this.#probe.waiting.length
  }

  whenEnded(): Promise<Terminated> {
    return this.#probe.nextTerminated('60s')
  }
}

async function start(t: Test): Promise<ActorSystem> {
  const system = await createActorSystem({ logLevel: 'silent', threadExecArgv: [], warmSpare: false })
  t.teardown(() => system.shutdown())
  return system
}

/** Priorities of the threads of this process whose names begin so; Linux only. */
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
    return stat.includes(`(${name}`) ? [Number(words[NICE - 2])] : []
  })
}

t.test('it answers, and takes its share of a core at most', async t => {
  const system = await start(t)
  const startMs = performance.now()
  const asked = new Asked(system, taskOf(6000))
  let seen: number[] = []
  let last = await asked.next()
  while (last.kind === 'progress') {
    const now = process.platform === 'linux' ? priorities('dedicated-') : []
    // Where this thread hears of its progress late, the other one may have ended.
    if (now.length > 0) seen = now
    last = await asked.next()
  }
  const elapsedMs = performance.now() - startMs
  if (last.kind !== 'answer') throw new Error(JSON.stringify(last))
  t.equal(last.answer.rows.length, 7)
  t.ok(asked.words.length > 8, `${asked.words.length} words`)
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
  const system = await start(t)
  const asked = new Asked(system, taskOf(20_000))
  await asked.next()
  const before = asked.waiting
  t.equal((await system.stop(asked.ref)).reason, 'stopped')
  const after = asked.waiting
  t.ok(after - before <= 1, 'nothing but what was on its way')
  while (process.platform === 'linux' && priorities('dedicated-').length > 0)
    await new Promise(resolve => setImmediate(resolve))
  t.equal(asked.waiting, after, 'its thread is gone')
})

t.test('more blocks than a heap holds are left out, and the process lives', async t => {
  const long = {
    inputTokens: 50_000,
    cachedTokens: 48_000,
    knowledge: 'none',
    sequenceHashes: new Int32Array(),
  } as const
  const system = await start(t)
  const asked = new Asked(system, { ...taskOf(3000, long), cpuShare: 1 })
  t.equal((await asked.next()).kind, 'progress', 'all is read, and the first simulation has begun')
  await system.stop(asked.ref)
})

t.test('a task that cannot be answered is an error, and a broken one ends it', async t => {
  const system = await start(t)
  const early = new Asked(system, { ...taskOf(10), sinceMs: 1e15 })
  t.match(await early.next(), { kind: 'error', error: { code: 'HOMING_WHAT_IF_NOTHING_TO_SAY' } })
  const broken = new Asked(system, { ...taskOf(10), kept: null } as never)
  const { reason, error } = await broken.whenEnded()
  t.equal(reason, 'failed')
  t.match(error?.message, /null/)
  t.equal(broken.waiting, 0, 'it says nothing')
})
