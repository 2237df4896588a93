/**
 * The parts legs-Nk of the bench: requests in two legs beside whole ones. See the header of main.ts.
 */

import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { type Measures, parameter, Skip } from '../harness.ts'
import { median } from '../statistics.ts'
import { type Answer, sendAll, sendInLegs } from './client.ts'
import { cpuMsOf, knowsCpuTime, type Process, startProcess } from './processes.ts'
import { compilingBodies, promptBodies } from './prompts.ts'
import { routerFile } from './rivals.ts'
import { untilExact } from './trust.ts'

const requests = parameter('legsRequests', { smoke: 8, full: 384 })
const loneRequests = parameter('legsLone', { smoke: 4, full: 192 })
const warmUp = parameter('legsWarmUp', { smoke: 8, full: 2000 })
const slice = parameter('legsSlice', { smoke: 4, full: 32 })
const concurrency = parameter('legsConcurrency', { smoke: 4, full: 8 })
const speed = parameter('legsSpeed', { smoke: 0, full: 20 })
const ENGINES = fileURLToPath(new URL('engines.ts', import.meta.url))
const OUTPUT_TOKENS = 16
const CONVERSATIONS = 8
const WARM_UP_CONCURRENCY = 64
const WARM_UP_ROUNDS = 10
/** Prompt tokens of a part: those with long prompts have fewer. */
const PART_TOKENS_MAX = 5_000_000
const ENGINES_OF_ARM = 2

export const LEGS_PARTS: readonly string[] = ['legs-1k', 'legs-12k', 'legs-100k']

export interface LegsOptions {
  readonly checkout: string
  /** Another checkout, installed; '': none. */
  readonly against: string
  readonly tokenizer: string
}

interface Arm {
  readonly name: string
  readonly engines: readonly string[]
  /** Undefined: the client calls the engines itself. */
  readonly router: Process | undefined
  readonly answers: Answer[]
  /** Of requests that were alone. */
  readonly lone: Answer[]
  cpuMs: number
}

export function isLegsPart(name: string): boolean {
  return /^legs-\d+k$/.test(name)
}

/** One run of one part: all arms in turn. */
export async function runLegsPart(part: string, options: LegsOptions): Promise<Measures | Skip> {
  if (!knowsCpuTime) return new Skip('the CPU time of another process is read from /proc, which is not here')
  const processes: Process[] = []
  const start: typeof startProcess = async (file, words) => {
    const started = await startProcess(file, words)
    processes.push(started)
    return started
  }
  try {
    const promptTokens = Number(/\d+/.exec(part)![0]) * 1000
    const arms = await startArms(start, options)
    await measure(arms, promptTokens)
    return figures(arms, part)
  } finally {
    await Promise.all(processes.map(started => started.stop()))
  }
}

/** Every arm has two engines of its own: for whole requests, or one for prompts and one for answers. */
async function startArms(
  start: typeof startProcess,
  { checkout, against, tokenizer }: LegsOptions,
): Promise<readonly Arm[]> {
  // Neither of those that are compared is at an end, where two turns of an arm follow each other.
  const names = ['direct', 'whole', 'apart', ...(against === '' ? [] : ['before']), 'direct again']
  const roles = names.flatMap(name => (name === 'whole' ? ['both', 'both'] : ['prefill', 'decode']))
  const { urls } = await start(ENGINES, [
    String(roles.length),
    String(speed),
    tokenizer,
    '',
    '',
    roles.join(),
  ])
  return Promise.all(
    names.map(async (name, i): Promise<Arm> => {
      const at = i * ENGINES_OF_ARM
      const engines = urls.slice(at, at + ENGINES_OF_ARM)
      const arm = { name, engines, answers: [], lone: [], cpuMs: 0 }
      if (name.startsWith('direct')) return { ...arm, router: undefined }
      const workers = engines.map((url, j) => `${url}?role=${roles[at + j]}`)
      const router = await start(routerFile(name === 'before' ? against : checkout), [
        ...['router', '--host', '127.0.0.1', '--port', '0', '--log-level', 'warn', '--seed', '1'],
        ...['--tokenizer', tokenizer, ...workers.flatMap(url => ['--worker', url])],
      ])
      return { ...arm, router }
    }),
  )
}

async function measure(arms: readonly Arm[], promptTokens: number): Promise<void> {
  const prompts = { promptTokens, outputTokens: OUTPUT_TOKENS, conversations: CONVERSATIONS }
  const bodies = promptBodies({ ...prompts, seed: 1, isStream: true })
  const most = Math.ceil(PART_TOKENS_MAX / promptTokens)
  const take = (count: number): readonly string[] => Array.from({ length: count }, () => bodies.next().value)
  const compiling = [...compilingBodies(warmUp)]
  const round = Math.ceil(compiling.length / WARM_UP_ROUNDS)
  for (let at = 0; at < compiling.length; at += round)
    for (const { router } of arms)
      if (router !== undefined)
        await sendAll(router.urls, compiling.slice(at, at + round), WARM_UP_CONCURRENCY)
  for (const { router } of arms) if (router !== undefined) await untilExact(router.urls[0]!, ENGINES_OF_ARM)
  const own = take(Math.min(warmUp, 2 * CONVERSATIONS))
  for (const arm of arms) await sendBy(arm, own, concurrency)
  let order = arms
  const turns = async (count: number, of: (arm: Arm, sent: readonly string[]) => Promise<void>) => {
    const total = Math.min(count, most)
    for (let sent = 0; sent < total; sent += slice) {
      const turn = take(Math.min(slice, total - sent))
      for (const arm of order) await of(arm, turn)
      order = order.toReversed()
    }
  }
  await turns(requests, async (arm, sent) => {
    if (arm.router === undefined) return
    const before = cpuMsOf(arm.router.pid)
    arm.answers.push(...(await sendBy(arm, sent, concurrency)))
    arm.cpuMs += cpuMsOf(arm.router.pid) - before
  })
  await turns(loneRequests, async (arm, sent) => void arm.lone.push(...(await sendBy(arm, sent, 1))))
  for (const { name, lone } of arms)
    for (const [i, { text }] of lone.entries())
      assert.equal(text, arms[0]!.lone[i]!.text, `answer ${i} of ${name} is that of the engines`)
}

function sendBy(
  { engines, router }: Arm,
  bodies: readonly string[],
  atOnce: number,
): Promise<readonly Answer[]> {
  return router === undefined
    ? sendInLegs(engines[0]!, engines[1]!, bodies)
    : sendAll(router.urls, bodies, atOnce)
}

function figures(arms: readonly Arm[], part: string): Measures {
  const named = (name: string): Arm => arms.find(arm => arm.name === name)!
  for (const { name, answers } of arms)
    if (name === 'apart' || name === 'before')
      for (const { headers } of answers)
        assert.ok(headers['x-homing-prefill-worker'], `a request of ${name} went in two legs`)
  const cpuMs = (name: string): number => named(name).cpuMs / named(name).answers.length
  const firstByteMs = (name: string): number => median(named(name).lone.map(({ firstByteMs: ms }) => ms))
  const routers = arms.filter(({ router }) => router !== undefined).map(({ name }) => name)
  const directMs = (firstByteMs('direct') + firstByteMs('direct again')) / 2
  const entries: [string, Measures[string]][] = []
  for (const name of routers) entries.push([`${part} ${name}`, { value: cpuMs(name), unit: 'ms CPU' }])
  for (const name of routers.filter(each => each !== 'whole')) {
    entries.push([`${part} ${name} ÷ whole`, { value: cpuMs(name) / cpuMs('whole'), unit: '' }])
    const addedMs = firstByteMs(name) - directMs
    entries.push([`${part} first byte added ${name}`, { value: addedMs, unit: 'ms' }])
  }
  if (routers.includes('before'))
    entries.push([`${part} apart ÷ before`, { value: cpuMs('apart') / cpuMs('before'), unit: '' }])
  for (const { name } of arms)
    entries.push([`${part} first byte ${name}`, { value: firstByteMs(name), unit: 'ms' }])
  return Object.fromEntries(entries)
}
