/**
 * The parts of the bench in a closed loop: router and relays in turn, on simulated engines. See the header of
 * main.ts.
 */

import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { crc32 } from 'node:zlib'
import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import { type Measure, type Measures, parameter, percentile, Skip } from '../harness.ts'
import { median } from '../statistics.ts'
import { type Answer, sendAll } from './client.ts'
import { cpuMsOf, helperMsOf, knowsCpuTime, type Process, startProcess } from './processes.ts'
import { BLOCK_TOKENS, compilingBodies, newBodies, nextBodies, promptBodies } from './prompts.ts'
import { routerFile } from './rivals.ts'
import { untilExact } from './trust.ts'

const promptTokens = parameter('promptTokens', { smoke: 1000, full: 1000 })
const outputTokens = parameter('outputTokens', { smoke: 8, full: 64 })
const conversations = parameter('conversations', { smoke: 2, full: 16 })
const engineCount = parameter('engines', { smoke: 1, full: 2 })
const speed = parameter('speed', { smoke: 0, full: 2 })
const requests = parameter('requests', { smoke: 16, full: 512 })
const warmUp = parameter('warmUp', { smoke: 10, full: 5000 })
const slice = parameter('slice', { smoke: 8, full: 32 })
const concurrency = parameter('concurrency', { smoke: 4, full: 8 })
const KNOWN_PART = /^((plane-)?(stream|whole)|(new|next)-\d+k)$/
const OVERLAP_SHARE_MIN = 0.25
const SHORT_ANSWER_TOKENS = 8
/** Requests of a part with long prompts are fewer, so that each part takes about the same time. */
const PART_TOKENS_MAX = 5_000_000
/** Slices of a part with answers of usual length that are sent before the clock starts. */
const OWN_WARM_UPS = 8
/** Prompt tokens of the warm-up with requests of the part itself. */
const OWN_WARM_UP_TOKENS = 1_600_000
/** Most tokens of all conversations of a part together: an engine can cache all of them. */
const CHATS_TOKENS_MAX = 375_000
const LONG_PARTS_SPEED = 10
const WARM_UP_CONCURRENCY = 64
const WARM_UP_ROUNDS = 10
const RELAY = fileURLToPath(new URL('relay.ts', import.meta.url))
const ENGINES = fileURLToPath(new URL('engines.ts', import.meta.url))

interface Stoppable {
  stop(): Promise<void> | void
}

interface Arm {
  readonly name: string
  readonly urls: readonly string[]
  /** What stands between client and engines; undefined: nothing. */
  readonly process: Process | undefined
  readonly isRouter: boolean
  readonly answers: Answer[]
  cpuMs: number
  /** The part of V8's own threads. */
  helperMs: number
  /** For a request of each slice. */
  readonly sliceMs: number[]
}

/** Those that run without --vs. */
export const CLOSED_PARTS: readonly string[] = [
  ...['stream', 'whole', 'new-1k', 'next-1k', 'new-12k', 'next-12k', 'new-100k', 'next-100k'],
  ...['plane-stream', 'plane-whole'],
]

/** True for the name of a part of this kind. */
export function isClosedPart(name: string): boolean {
  return KNOWN_PART.test(name)
}

function isPlanePart(name: string): boolean {
  return name.startsWith('plane-')
}

/** What is measured, and with what. */
export interface ClosedOptions {
  readonly checkout: string
  /** Another checkout, installed; '': none. */
  readonly against: string
  readonly tokenizer: string
}

/** One run of one part: all arms in turn. */
export async function runClosedPart(part: string, options: ClosedOptions): Promise<Measures | Skip> {
  if (!knowsCpuTime) return new Skip('the CPU time of another process is read from /proc, which is not here')
  const processes: Stoppable[] = []
  const start = async (file: string, words: readonly string[]): Promise<Process> => {
    const started = await startProcess(file, words)
    processes.push(started)
    return started
  }
  try {
    const workload = workloadOf(part)
    if (isPlanePart(part)) {
      const nats = NO_NATS_SERVER === false ? await NatsServer.start({}) : undefined
      if (nats !== undefined) processes.push(nats)
      const arms = await startPlaneArms(start, workload.speed, options, nats?.address)
      return planeFigures(await measured(arms, workload), part)
    }
    return figures(await measured(await startArms(start, workload.speed, options), workload), part)
  } finally {
    await Promise.all(processes.map(started => started.stop()))
  }
}

/** One run of one part, with one router and no other arm: of `checkout`. */
export async function runAlonePart(
  part: string,
  { checkout, tokenizer }: Pick<ClosedOptions, 'checkout' | 'tokenizer'>,
): Promise<Measures | Skip> {
  if (!knowsCpuTime) return new Skip('the CPU time of another process is read from /proc, which is not here')
  const processes: Stoppable[] = []
  try {
    const workload = workloadOf(part)
    const engines = await startProcess(ENGINES, [String(engineCount), String(workload.speed), tokenizer])
    processes.push(engines)
    const router = await startProcess(routerFile(checkout), routerWords(tokenizer, engines.urls))
    processes.push(router)
    const arm: Arm = {
      ...{ name: 'router', answers: [], cpuMs: 0, helperMs: 0, sliceMs: [] },
      ...{ urls: router.urls, process: router, isRouter: true },
    }
    return aloneFigures(await measured([arm], workload), part)
  } finally {
    await Promise.all(processes.map(started => started.stop()))
  }
}

interface Workload {
  readonly bodies: Generator<string, never>
  /** Requests of the part before the clock starts. */
  readonly ownWarmUp: number
  readonly requests: number
  /** Of the engines. */
  readonly speed: number
  /** At least so much of the prompts was seen before. */
  readonly overlapShareMin: number
}

function workloadOf(part: string): Workload {
  if (part.endsWith('stream') || part.endsWith('whole')) {
    const isStream = part.endsWith('stream')
    const options = { seed: 1, promptTokens, outputTokens, conversations, isStream }
    const bodies = promptBodies(options)
    const ownWarmUp = Math.min(warmUp, Math.max(OWN_WARM_UPS * slice, 2 * conversations))
    return { bodies, ownWarmUp, requests, speed, overlapShareMin: OVERLAP_SHARE_MIN }
  }
  const tokens = Number(/\d+/.exec(part)![0]) * 1000
  const isNext = part.startsWith('next')
  const chats = Math.max(2, Math.min(conversations, Math.floor(CHATS_TOKENS_MAX / tokens)))
  const options = { seed: 1, promptTokens: tokens, outputTokens: SHORT_ANSWER_TOKENS, conversations: chats }
  return {
    bodies: isNext ? nextBodies(options) : newBodies(options),
    ownWarmUp: Math.min(warmUp, Math.max(2 * chats, Math.min(128, Math.ceil(OWN_WARM_UP_TOKENS / tokens)))),
    requests: Math.min(requests, Math.ceil(PART_TOKENS_MAX / tokens)),
    speed: speed * LONG_PARTS_SPEED,
    overlapShareMin: isNext ? OVERLAP_SHARE_MIN : 0,
  }
}

/** Every arm has engines of its own: what they have cached is what this arm sent. */
async function startArms(
  start: typeof startProcess,
  engineSpeed: number,
  { checkout, against, tokenizer }: ClosedOptions,
): Promise<readonly Arm[]> {
  // Neither of the two that are compared is at an end, where turns forwards and backwards of an arm follow
  // each other.
  const names = ['direct', 'homing', ...(against === '' ? [] : ['before']), 'relay', 'relay parse']
  const { urls } = await start(ENGINES, [String(names.length * engineCount), String(engineSpeed), tokenizer])
  return Promise.all(
    names.map(async (name, i): Promise<Arm> => {
      const engines = urls.slice(i * engineCount, (i + 1) * engineCount)
      const arm = { name, answers: [], cpuMs: 0, helperMs: 0, sliceMs: [] }
      if (name === 'direct') return { ...arm, urls: engines, process: undefined, isRouter: false }
      if (name.startsWith('relay')) {
        const relay = await start(RELAY, [name === 'relay' ? 'pipe' : 'parse', ...engines])
        return { ...arm, urls: relay.urls, process: relay, isRouter: false }
      }
      const router = await start(
        routerFile(name === 'homing' ? checkout : against),
        routerWords(tokenizer, engines),
      )
      return { ...arm, urls: router.urls, process: router, isRouter: true }
    }),
  )
}

function routerWords(tokenizer: string, engines: readonly string[]): readonly string[] {
  return [
    ...['router', '--host', '127.0.0.1', '--port', '0', '--log-level', 'warn', '--seed', '1'],
    ...['--tokenizer', tokenizer, ...engines.flatMap(url => ['--worker', url])],
  ]
}

/** Routers of this checkout that differ in the request plane alone, each with engines of its own. */
async function startPlaneArms(
  start: typeof startProcess,
  engineSpeed: number,
  { checkout, tokenizer }: ClosedOptions,
  nats: string | undefined,
): Promise<readonly Arm[]> {
  const planes = ['http', 'tcp', ...(nats === undefined ? [] : ['nats'])]
  // As above: none of the planes is at an end.
  const names = ['direct', ...planes, 'relay']
  const words = names.map(name => (planes.includes(name) ? name : 'http'))
  const doors = words.flatMap(plane => Array.from({ length: engineCount }, () => plane))
  const { urls } = await start(ENGINES, [
    ...[String(doors.length), String(engineSpeed), tokenizer],
    ...[doors.join(','), nats ?? ''],
  ])
  return Promise.all(
    names.map(async (name, i): Promise<Arm> => {
      const engines = urls.slice(i * engineCount, (i + 1) * engineCount)
      const arm = { name, answers: [], cpuMs: 0, helperMs: 0, sliceMs: [] }
      if (name === 'direct') return { ...arm, urls: engines, process: undefined, isRouter: false }
      if (name === 'relay') {
        const relay = await start(RELAY, ['pipe', ...engines])
        return { ...arm, urls: relay.urls, process: relay, isRouter: false }
      }
      const router = await start(routerFile(checkout), [
        ...routerWords(tokenizer, engines),
        ...['--request-plane', name, ...(name === 'nats' ? ['--nats', nats!] : [])],
      ])
      await isCalledOver(router.urls[0]!, name)
      return { ...arm, urls: router.urls, process: router, isRouter: true }
    }),
  )
}

/** Rejects if the router at `url` calls its workers another way. */
async function isCalledOver(url: string, plane: string): Promise<void> {
  const { workers } = (await (await fetch(`${url}/workers`)).json()) as {
    readonly workers: readonly { readonly called_at: string | null }[]
  }
  for (const { called_at } of workers)
    assert.equal(called_at?.split(':', 1)[0] ?? 'http', plane, 'the plane on which workers are called')
}

/** The arms, with their answers. */
async function measured(arms: readonly Arm[], workload: Workload): Promise<readonly Arm[]> {
  const { bodies, overlapShareMin } = workload
  const take = (count: number): readonly string[] => Array.from({ length: count }, () => bodies.next().value)
  await warmUpOf(arms, take(workload.ownWarmUp))
  let order = arms
  for (let sent = 0; sent < workload.requests; sent += slice) {
    const prompts = take(Math.min(slice, workload.requests - sent))
    for (const arm of order) {
      const pid = arm.process?.pid
      const before = pid === undefined ? 0 : cpuMsOf(pid)
      const helpersBefore = pid === undefined ? 0 : helperMsOf(pid)
      arm.answers.push(...(await sendAll(arm.urls, prompts, concurrency)))
      if (pid === undefined) continue
      const spentMs = cpuMsOf(pid) - before
      arm.cpuMs += spentMs
      arm.sliceMs.push(spentMs / prompts.length)
      arm.helperMs += helperMsOf(pid) - helpersBefore
    }
    order = order.toReversed()
  }
  for (const arm of arms) check(arm, arms[0]!, overlapShareMin)
  return arms
}

/**
 * In turns, as the parts themselves: an arm that was warm minutes before the others had lost a fifth of its
 * speed again when the clock started (measured with one checkout in both arms).
 */
async function warmUpOf(arms: readonly Arm[], own: readonly string[]): Promise<void> {
  const bodies = [...compilingBodies(warmUp)]
  const round = Math.ceil(bodies.length / WARM_UP_ROUNDS)
  for (let at = 0; at < bodies.length; at += round) {
    for (const arm of arms) {
      if (arm.process !== undefined)
        await sendAll(arm.urls, bodies.slice(at, at + round), WARM_UP_CONCURRENCY)
    }
  }
  for (let at = 0; at < own.length; at += slice)
    for (const arm of arms) await sendAll(arm.urls, own.slice(at, at + slice), concurrency)
  for (const arm of arms) if (arm.isRouter) await untilExact(arm.urls[0]!, engineCount)
}

function check(arm: Arm, direct: Arm, overlapShareMin: number): void {
  for (const [i, { text }] of arm.answers.entries()) {
    assert.equal(text, direct.answers[i]!.text, `answer ${i} of ${arm.name} is that of the engine`)
  }
  if (!arm.isRouter) return
  const share = overlapShare(arm)
  assert.ok(share >= overlapShareMin, `the overlap of ${arm.name} is ${share} of the prompts`)
}

function overlapShare({ answers }: Arm): number {
  const overlapBlocks = sum(answers.map(({ headers }) => Number(headers['x-homing-overlap-blocks'])))
  return (overlapBlocks * BLOCK_TOKENS) / sum(answers.map(answer => answer.promptTokens))
}

function figures(arms: readonly Arm[], part: string): Measures {
  const named = (name: string): Arm | undefined => arms.find(arm => arm.name === name)
  const requests = arms[0]!.answers.length
  const cpuMs = (name: string): number => named(name)!.cpuMs / requests
  const homing = named('homing')!
  const raw = { relay: cpuMs('relay'), 'relay parse': cpuMs('relay parse') }
  const cpu = {
    [`${part} homing`]: { value: cpuMs('homing'), unit: 'ms CPU', raw },
    [`${part} homing ÷ relay parse`]: { value: cpuMs('homing') / cpuMs('relay parse'), unit: '' },
    ...(named('before') && {
      [`${part} before`]: { value: cpuMs('before'), unit: 'ms CPU' },
      [`${part} homing ÷ before`]: { value: cpuMs('homing') / cpuMs('before'), unit: '' },
    }),
  }
  const firstByte = arms.map(({ name, answers }) => {
    const value = percentile(
      Float64Array.from(answers, ({ firstByteMs }) => firstByteMs),
      50,
    )
    return [`${part} first byte ${name}`, { value, unit: 'ms' }] as const
  })
  const pieces = arms.map(({ name, answers }) => {
    const value = sum(answers.map(answer => answer.pieces)) / requests
    return [`stream pieces ${name}`, { value, unit: '' }] as const
  })
  return {
    ...cpu,
    ...Object.fromEntries(firstByte),
    ...(part === 'stream' ? Object.fromEntries(pieces) : {}),
    [`${part} overlap`]: { value: overlapShare(homing) * 100, unit: '% of the prompt' },
    [`${part} prompt`]: {
      value: sum(homing.answers.map(answer => answer.promptTokens)) / requests,
      unit: 'tokens',
    },
  }
}

function aloneFigures([arm]: readonly Arm[], part: string): Measures {
  const { answers, cpuMs, helperMs, sliceMs } = arm!
  const count = answers.length
  return {
    [`${part} CPU`]: { value: cpuMs / count, unit: 'ms CPU' },
    [`${part} CPU in most slices`]: { value: median(sliceMs), unit: 'ms CPU' },
    [`${part} CPU of its threads`]: { value: (cpuMs - helperMs) / count, unit: 'ms CPU' },
    [`${part} CPU of V8's`]: { value: helperMs / count, unit: 'ms CPU' },
    ...(part.endsWith('stream') && {
      [`${part} pieces`]: { value: sum(answers.map(({ pieces }) => pieces)) / count, unit: '' },
    }),
    [`${part} overlap`]: { value: overlapShare(arm!) * 100, unit: '% of the prompt' },
    [answersPin(part)]: { value: sum(answers.map(({ text }) => crc32(text))), unit: '' },
  }
}

/** Name of the measure that is the same where all answers of a part are. */
export function answersPin(part: string): string {
  return `${part} answers`
}

function planeFigures(arms: readonly Arm[], part: string): Measures {
  const cpuMs = Object.fromEntries(arms.map(({ name, cpuMs, answers }) => [name, cpuMs / answers.length]))
  const raw = { relay: cpuMs['relay']! }
  const measures: Record<string, Measure> = {}
  for (const { name } of arms.filter(({ isRouter }) => isRouter)) {
    measures[`${part} ${name}`] = { value: cpuMs[name]!, unit: 'ms CPU', raw }
    if (name !== 'http')
      measures[`${part} ${name} ÷ http`] = { value: cpuMs[name]! / cpuMs['http']!, unit: '' }
  }
  for (const { name, answers } of arms) {
    const value = percentile(
      Float64Array.from(answers, ({ firstByteMs }) => firstByteMs),
      50,
    )
    measures[`${part} first byte ${name}`] = { value, unit: 'ms' }
  }
  return measures
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
