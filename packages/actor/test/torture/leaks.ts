/**
 * Leaks: an actor's heap grows to a random level and stays there, again and again, while an innocent actor of
 * the same thread is asked all the time. Each time the thread has to serve again within `shedFor` and the
 * time to end and replace it; watchers are told threadOom when it was replaced.
 */

import {
  type ActorRef,
  type ActorSystem,
  createActorSystem,
  type Terminated,
  type TerminationReason,
  ThreadDownError,
} from '@homing/actor'
import { seededRandom, silentLog, systemClock } from '@homing/base'
import { answerer, type LeakerMessage, leaker } from './leaker.ts'

export interface LeakOptions {
  readonly seed: number
  /** Leaks that stop at a level of the heap. */
  readonly cycles: number
  /** The levels of the first leaks; later levels are random, from 0.5 to 1.0. */
  readonly levels?: readonly number[]
  /** Leaks that fill the heap in one turn, which only Node notices. */
  readonly bursts: number
  readonly shedForMs: number
  /** Beyond `shedFor`: to end the thread and start the next. */
  readonly replaceMsMax: number
  readonly onProgress?: (line: string) => void
  readonly onCycle?: (level: number, became: Outcome) => void
}

/** What became of the thread: it served on, or again, or another took its place. */
export type Outcome = 'served' | 'replaced'

export interface LeakResult {
  readonly seed: number
  /** By what became of the thread. */
  readonly served: number
  readonly replaced: number
  /** The longest time in which the innocent actor did not answer. */
  readonly outageMsMax: number
  readonly outageMsMedian: number
  /** Tells to the innocent actor that were answered `full`. */
  readonly toldFull: number
  /** Reasons that the watcher and the asker of a leak got after a burst. */
  readonly burstReasons: Readonly<Record<string, number>>
  readonly violations: readonly string[]
}

const HEAP_MB = 24
const KILOBYTES_MAX = 512
const ASK_MS = 500
const PAUSE_MS = 2
/** A cycle that takes longer is a violation, and the last. */
const CYCLE_MS_MAX = 60_000
/** Below this level a thread has no reason to shed. */
const HARMLESS = 0.6
const HARMLESS_MS = 30
/** How long beyond `shedFor` the thread is watched after a leak has stopped. */
const WATCHED_MS = 250
const THREAD = 'p-0'
const restart = { directive: 'restart', max: 1e6, within: '1m', backoff: { min: 0, max: 0 } } as const

export async function leaks(options: LeakOptions): Promise<LeakResult> {
  const { seed, cycles, levels = [], bursts, shedForMs, replaceMsMax, onProgress, onCycle } = options
  const random = seededRandom(seed)
  const system = await createActorSystem({
    pools: { p: { count: 1 } },
    log: silentLog,
    logLevel: 'silent',
    threadExecArgv: [],
    threadHeapMb: HEAP_MB,
    threadRestartsMax: 1e6,
    threadBackoff: { min: 0, max: 0 },
    heapPressure: { shedFor: shedForMs },
  })
  const innocent = system.spawn(answerer, {
    name: 'innocent',
    args: undefined,
    thread: THREAD,
    supervision: restart,
  })
  const outagesMs: number[] = []
  const violations: string[] = []
  const burstReasons: Record<string, number> = {}
  const outcomes: Record<Outcome, number> = { served: 0, replaced: 0 }
  let toldFull = 0

  /**
   * Asks the innocent actor until `isOver` says so and it has answered since; returns the longest time
   * without an answer.
   */
  const watchService = async (isOver: () => boolean): Promise<number> => {
    const startMs = systemClock.nowMs()
    let answeredMs = startMs
    let outageMs = 0
    for (let hasAnswered = false; !hasAnswered; ) {
      const wasOver = isOver()
      if (innocent.tell({ type: 'note' }) === 'full') toldFull++
      const isAnswered = await innocent.ask({ type: 'answer' }, { timeout: ASK_MS }).then(
        () => true,
        () => false,
      )
      const nowMs = systemClock.nowMs()
      outageMs = Math.max(outageMs, nowMs - answeredMs)
      if (isAnswered) answeredMs = nowMs
      hasAnswered = isAnswered && wasOver
      if (nowMs - startMs > CYCLE_MS_MAX) throw new Error('the innocent actor does not answer again')
      await pause()
    }
    return outageMs
  }

  const cycle = async (number: number): Promise<void> => {
    const level = levels[number - 1] ?? 0.5 + random.next() / 2
    const kilobytes = 8 + random.below(KILOBYTES_MAX)
    const name = `cycle ${number}, level ${level.toFixed(3)}, ${kilobytes} KB a turn`
    const lives = livesOf(system)
    const leak = await spawnLeaker(system)
    let ended: Terminated | undefined
    void system.whenTerminated(leak).then(terminated => {
      ended = terminated
    })
    leak.tell({ type: 'leak', level, kilobytes })
    const waitMs = level < HARMLESS ? HARMLESS_MS : shedForMs + WATCHED_MS
    let stoppedMs: number | undefined
    const look = async (): Promise<void> => {
      while (stoppedMs === undefined && ended === undefined) {
        const hasStopped = await leak.ask({ type: 'hasStopped' }, { timeout: ASK_MS }).catch(() => false)
        if (hasStopped) stoppedMs = systemClock.nowMs()
        await pause()
      }
    }
    const looking = look()
    const outageMs = await watchService(
      () => ended !== undefined || (stoppedMs !== undefined && systemClock.nowMs() - stoppedMs >= waitMs),
    )
    outagesMs.push(outageMs)
    if (outageMs > shedForMs + replaceMsMax)
      violations.push(`${name}: no answer for ${Math.round(outageMs)} ms`)
    const became: Outcome = livesOf(system) === lives ? 'served' : 'replaced'
    outcomes[became]++
    onCycle?.(level, became)
    const { reason } = await system.stop(leak).catch(() => system.whenTerminated(leak))
    await looking
    const expected: TerminationReason = became === 'replaced' ? 'threadOom' : 'stopped'
    if (reason !== expected) violations.push(`${name}: told ${reason}, not ${expected}`)
  }

  const burst = async (number: number): Promise<void> => {
    const leak = await spawnLeaker(system)
    const asked = leak.ask({ type: 'never' }, { timeout: '1m' }).catch((error: unknown) => error)
    const ended = system.whenTerminated(leak)
    leak.tell({ type: 'burst' })
    const [error, { reason }] = [await asked, await ended]
    const ofAsk = error instanceof ThreadDownError ? error.reason : String(error)
    const told = `watcher ${reason}, asker ${ofAsk}`
    burstReasons[told] = (burstReasons[told] ?? 0) + 1
    if (reason !== 'threadOom' || ofAsk !== 'threadOom') violations.push(`burst ${number}: ${told}`)
    await watchService(() => true)
  }

  for (let n = 1; n <= cycles; n++) {
    await cycle(n)
    if (n % 50 === 0)
      onProgress?.(`${n} cycles: ${JSON.stringify(outcomes)}, ${violations.length} violations`)
  }
  for (let n = 1; n <= bursts; n++) await burst(n)
  await system.shutdown({ deadline: '5s' })
  outagesMs.sort((a, b) => a - b)
  return {
    seed,
    ...outcomes,
    outageMsMax: Math.round(outagesMs.at(-1) ?? 0),
    outageMsMedian: Math.round(outagesMs[outagesMs.length >> 1] ?? 0),
    toldFull,
    burstReasons,
    violations,
  }
}

/** One that has started: its thread may be away. */
async function spawnLeaker(system: ActorSystem): Promise<ActorRef<LeakerMessage>> {
  for (const startMs = systemClock.nowMs(); systemClock.nowMs() - startMs < CYCLE_MS_MAX; await pause()) {
    const leak = system.spawn(leaker, { name: 'leak', args: undefined, thread: THREAD })
    const isUp = await leak.ask({ type: 'hasStopped' }, { timeout: ASK_MS }).then(
      () => true,
      () => false,
    )
    if (isUp) return leak
    await system.stop(leak).catch(() => undefined)
  }
  throw new Error('no leaker starts')
}

function livesOf(system: ActorSystem): number {
  return system.threads().find(({ name }) => name === THREAD)!.lives
}

/** As a client would that is refused. */
function pause(): Promise<void> {
  return new Promise(resolve => systemClock.after(PAUSE_MS, resolve))
}
