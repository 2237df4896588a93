/**
 * Engine usage: asks engines how much of their KV caches their requests use, and tells the tracker.
 *
 * In     the fleet; answers of engines.
 * Out    GET /metrics to every worker that is up, one question at a time for each and POLLS_MAX in all; to
 *        the tracker, after every answer: `reportedUsage`. To the directory: `lookAgain`, when the process of
 *        an engine has another start time than in its last answer.
 * Owns   when each worker is asked next. The figures are the tracker's.
 * Order  a worker has one *turn* at a time: a question under way, its place in the line, or a wait for the
 *        next. Answers of an earlier turn are dropped.
 * Fails  an engine without such metrics is told once in the log, and asked every LASTING_MS if it has no
 *        start time either. An engine that misses MISSES_MAX questions in a row counts as one without
 *        figures: an old figure could keep requests away from it forever. After a restart of this actor all
 *        are asked anew; the tracker keeps its figures.
 */

import { type ActorContext, defineActor } from '@homing/actor'
import type { KvUsageReport } from '@homing/actors/tracker'
import { type Fleet, namedRank, type WorkerRecord } from '@homing/fleet'
import { type HttpTransport, transportCapability } from '@homing/transport'
import type { EngineUsageArgs } from './engine-usage-args.ts'
import { readKvUsage, readStartSeconds } from './kv-usage.ts'
import type { EngineUsageMessage, UsageOutcome } from './messages.ts'

/** Questions under way at one time. */
const POLLS_MAX = 16
const MISSES_MAX = 3
const LASTING_MS = 60_000
const METRICS_BYTES_MAX = 8 * 1024 * 1024
const IS_DOWN = 'the worker is down'
const utf8 = new TextDecoder()

interface Polled {
  worker: WorkerRecord
  turn: number
  /** In a row. */
  misses: number
  /** The log says that it does not report. */
  isTold: boolean
  /** Of its process, as it said last. */
  startSeconds: number | undefined
}

export const engineUsage = defineActor(
  import.meta.url,
  'engine-usage',
)<EngineUsageMessage, EngineUsageArgs>({
  setup(context, args) {
    const polls = new UsagePolls(context, args)
    return {
      fleet: ({ fleet }) => polls.takeFleet(fleet),
      due: ({ workerId, turn }) => polls.due(workerId, turn),
      answered: ({ workerId, turn, outcome }) => polls.answered(workerId, turn, outcome),
    }
  },
})

class UsagePolls {
  readonly #context: ActorContext<EngineUsageMessage>
  readonly #args: EngineUsageArgs
  readonly #polled = new Map<string, Polled>()
  /** Workers to ask as soon as a question ends: ids, each with its turn. */
  #line: { readonly workerId: string; readonly turn: number }[] = []
  #underWay = 0
  #turns = 0

  constructor(context: ActorContext<EngineUsageMessage>, args: EngineUsageArgs) {
    this.#context = context
    this.#args = args
  }

  takeFleet({ workers }: Fleet): void {
    const present = new Set<string>()
    for (const worker of workers) {
      if (worker.state === 'probing' || worker.state === 'down') continue
      present.add(worker.id)
      const polled = this.#polled.get(worker.id)
      if (polled !== undefined) {
        polled.worker = worker
        continue
      }
      const turn = ++this.#turns
      this.#polled.set(worker.id, { worker, turn, misses: 0, isTold: false, startSeconds: undefined })
      this.due(worker.id, turn)
    }
    for (const [id, { worker }] of this.#polled) {
      if (present.has(id)) continue
      this.#polled.delete(id)
      this.#tell(worker, () => ({ share: undefined, reason: IS_DOWN }))
    }
  }

  due(workerId: string, turn: number): void {
    if (this.#polled.get(workerId)?.turn !== turn) return
    this.#line.push({ workerId, turn })
    this.#askNext()
  }

  answered(workerId: string, turn: number, outcome: UsageOutcome): void {
    this.#underWay--
    this.#askNext()
    const polled = this.#polled.get(workerId)
    if (polled?.turn !== turn) return
    const { worker } = polled
    this.#lookAtStart(polled, outcome.startSeconds)
    if (outcome.kind === 'reported') {
      polled.misses = 0
      polled.isTold = false
      this.#tell(worker, rank => shareOf(outcome.shares, rank, worker.keys.length))
      this.#schedule(polled, this.#args.intervalMs)
      return
    }
    const { reason, isLasting } = outcome
    polled.misses++
    if (isLasting || polled.misses >= MISSES_MAX) this.#tell(worker, () => ({ share: undefined, reason }))
    if (isLasting && !polled.isTold) {
      polled.isTold = true
      this.#context.log.info({ worker: workerId, reason }, 'the engine does not report its KV usage')
    }
    const isUseful = !isLasting || outcome.startSeconds !== undefined
    this.#schedule(polled, isUseful ? this.#args.intervalMs : Math.max(LASTING_MS, this.#args.intervalMs))
  }

  /** An engine that was started again in place has lost its cache, although its sockets may look the same. */
  #lookAtStart(polled: Polled, startSeconds: number | undefined): void {
    const before = polled.startSeconds
    if (startSeconds === undefined || startSeconds === before) return
    polled.startSeconds = startSeconds
    if (before !== undefined) this.#args.directory.tell({ type: 'lookAgain', workerId: polled.worker.id })
  }

  #askNext(): void {
    while (this.#underWay < POLLS_MAX) {
      const next = this.#line.shift()
      if (next === undefined) return
      const { workerId, turn } = next
      const polled = this.#polled.get(workerId)
      if (polled?.turn !== turn) continue
      this.#underWay++
      const { http } = this.#context.use(transportCapability)
      this.#context.pipe(
        usageOf(http, polled.worker.origin, this.#args.timeoutMs),
        outcome => ({ type: 'answered', workerId, turn, outcome }),
        thrown => ({
          type: 'answered',
          workerId,
          turn,
          outcome: { kind: 'unknown', reason: String(thrown), isLasting: false },
        }),
      )
    }
  }

  #schedule(polled: Polled, delayMs: number): void {
    polled.turn = ++this.#turns
    this.#context.schedule(delayMs, { type: 'due', workerId: polled.worker.id, turn: polled.turn })
  }

  /** A report that finds no room at the tracker is replaced by the next answer. */
  #tell({ keys }: WorkerRecord, of: (dpRank: number) => Pick<KvUsageReport, 'share' | 'reason'>): void {
    const reports = keys.map(({ key, workerSlot, dpRank }) => ({ worker: key, workerSlot, ...of(dpRank) }))
    if (reports.length > 0) this.#args.tracker.tell({ type: 'reportedUsage', reports })
  }
}

function shareOf(
  shares: ReadonlyMap<number, number>,
  dpRank: number,
  ranks: number,
): Pick<KvUsageReport, 'share' | 'reason'> {
  const rank = namedRank(shares.keys(), dpRank, ranks)
  const share = rank === undefined ? undefined : shares.get(rank)
  if (share !== undefined) return { share, reason: undefined }
  return { share, reason: `its metrics name no rank ${dpRank}` }
}

async function usageOf(http: HttpTransport, origin: string, timeoutMs: number): Promise<UsageOutcome> {
  try {
    const limits = { timeoutMs, maxBytes: METRICS_BYTES_MAX }
    const { status, body } = await http.fetch({ origin, method: 'GET', path: '/metrics' }, limits)
    if (status !== 200) {
      const isLasting = status < 500 && status !== 429
      return { kind: 'unknown', reason: `GET /metrics answers ${status}`, isLasting }
    }
    const metrics = utf8.decode(body)
    const shares = readKvUsage(metrics)
    const startSeconds = readStartSeconds(metrics)
    if (shares.size > 0) return { kind: 'reported', shares, startSeconds }
    return { kind: 'unknown', reason: 'its metrics do not name its KV usage', isLasting: true, startSeconds }
  } catch (thrown) {
    return { kind: 'unknown', reason: (thrown as Error).message, isLasting: false }
  }
}
