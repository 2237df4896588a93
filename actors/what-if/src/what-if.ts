/**
 * What if: keeps the requests of the last minutes, and has a simulation say what another fleet or policy
 * would have done with them.
 *
 * In     `settled` from the router; the fleet; questions, cancellations and looks of the console.
 * Out    to an actor for each question (question.ts), on a thread of its own: what is kept, as memory that
 *        both can read.
 * Owns   the kept requests, the run that is under way, the last answer.
 * Bounds bytes and age of what is kept (request-memory.ts); one run at a time; its blocks (read-kept.ts), its time, its heap, its share of a
 *        core; the mailbox. Requests that find no room are counted; those that no worker took are not kept.
 * Fails  a question that ends without an answer fails its run. What it says is heard also if the mailbox is full of other things.
 *        After a restart nothing is kept, and the run is gone.
 * Thread main: to keep a request takes a copy of its hashes. What a question costs is on its own thread.
 */

import { type ActorRef, defineActor, signal, type Terminated } from '@homing/actor'
import type { SettledRequest } from '@homing/actors/decision-log'
import type { TrackerMessage } from '@homing/actors/tracker'
import { toErrorRecord } from '@homing/base'
import { type KeptRequest, RequestMemory, type WhatIfTask } from '@homing/simulate/what-if'
import { type LoggedSelection, type LoggedWorker, loggedWorkers } from '@homing/trace'
import { WhatIfBusyError, WhatIfFailedError } from './errors.ts'
import type { WhatIfMessage, WhatIfReport, WhatIfRun } from './messages.ts'
import { questionActor } from './question.ts'

export interface WhatIfArgs {
  readonly tracker: ActorRef<TrackerMessage>
  readonly minutesMax: number
  readonly bytesMax: number
  /** Of one core, 0 … 1. */
  readonly cpuShare: number
  /** Of one question, in milliseconds. */
  readonly timeMsMax: number
  readonly selection: LoggedSelection
}

const WHAT_IF_LOOK_MS = 10_000
const LOADS_ASK_MS_MAX = 5000
const ID_BYTES = 6
/** Of a question, which uses about half of it; the runtime ends a thread whose heap stays 0.7 full. */
const HEAP_MB_MAX = 1024

type Running = { -readonly [K in keyof WhatIfRun]: WhatIfRun[K] } & { readonly sinceMs: number }

export const whatIf = defineActor(
  import.meta.url,
  'whatIf',
)<WhatIfMessage, WhatIfArgs>({
  reentrant: true,
  // There is room for it while requests fill the mailbox.
  control: ['questionSaid'],
  setup(context, { tracker, minutesMax, bytesMax, cpuShare, timeMsMax, selection }) {
    const memory = new RequestMemory({ bytesMax, ageMsMax: minutesMax * 60_000 })
    const answering = context.use(questionActor)
    let workers: readonly LoggedWorker[] = []
    /** Number of the next settled request. */
    let expected: number | undefined
    let lost = 0
    /**
     * The clock of the computer, set back or forth since the router began, is so much ahead of the times of
     * requests.
     */
    let aheadMs = 0
    let endOfTime: { cancel(): void } | undefined
    let run: Running | undefined
    let asked: ActorRef<never> | undefined
    const ended = { done: 0, cancelled: 0, failed: 0 }
    let cpuMs = 0
    context.scheduleEvery(WHAT_IF_LOOK_MS, { type: 'look' })

    const report = (): WhatIfReport => {
      const { requests, bytes, refused, oldestMs } = memory.status
      return {
        kept: {
          requests,
          bytes,
          bytesMax,
          minutesMax,
          dropped: refused + lost,
          oldestMs: oldestMs === undefined ? undefined : oldestMs + aheadMs,
        },
        cpuShare,
        timeMsMax,
        run: run === undefined ? undefined : viewOf(run, context.clock.nowMs()),
        ended: { ...ended },
        cpuMs: cpuMs + (run?.state === 'running' ? (run.progress?.cpuMs ?? 0) : 0),
      }
    }
    const end = (state: 'done' | 'cancelled' | 'failed', more: Partial<Running> = {}): void => {
      if (run?.state !== 'running') return
      if (asked !== undefined) context.stop(asked)
      asked = undefined
      endOfTime?.cancel()
      ended[state]++
      cpuMs += more.answer?.cpuMs ?? run.progress?.cpuMs ?? 0
      Object.assign(run, more, { state, elapsedMs: context.clock.nowMs() - run.sinceMs })
    }
    const fail = (reason: string): void => {
      end('failed', { error: toErrorRecord(new WhatIfFailedError(reason)) })
    }
    /** A run that is not this one any more has nothing to say. */
    const isOf = (id: string): boolean => run?.id === id && run.state === 'running'

    return {
      fleet({ fleet }) {
        workers = loggedWorkers(fleet.workers)
      },

      settled({ request, number }) {
        // A lower number: the router has begun anew.
        if (expected !== undefined && number > expected) lost += number - expected
        expected = number + 1
        aheadMs = context.clock.wallMs() - request.arrivedAtMs - request.totalMs
        const { worker } = request
        if (request.wasTaken && worker !== undefined)
          memory.keep(keptOf(request, worker), context.clock.nowMs())
      },

      async askWhatIf({ question, reply }) {
        if (run?.state === 'running') {
          reply(toErrorRecord(new WhatIfBusyError(run.id, context.clock.nowMs() - run.sinceMs)))
          return
        }
        const { nowMs, wallMs } = { nowMs: context.clock.nowMs(), wallMs: context.clock.wallMs() }
        const id = Buffer.from(context.random.bytes(ID_BYTES)).toString('hex')
        run = {
          id,
          question,
          startedAtMs: wallMs,
          sinceMs: nowMs,
          state: 'running',
          elapsedMs: 0,
          progress: undefined,
          answer: undefined,
          error: undefined,
        }
        memory.look(nowMs)
        endOfTime = context.schedule(timeMsMax, { type: 'timeIsUp', run: id })
        reply(report())
        const loads = await tracker
          .ask({ type: 'loads' }, { timeout: LOADS_ASK_MS_MAX })
          .catch(() => undefined)
        if (!isOf(id)) return
        const task: WhatIfTask = {
          kept: memory.kept,
          sinceMs: wallMs - aheadMs - question.minutes * 60_000,
          workers,
          selection,
          profile: question.profile,
          learned: Object.fromEntries((loads?.rows ?? []).map(({ worker, learned }) => [worker, learned])),
          anyway: question.anyway,
          cpuShare,
        }
        asked = context.spawn(answering, {
          name: 'question',
          // At the lowest priority it may be without a core for long: only its time bounds it.
          thread: { dedicated: { heapMb: HEAP_MB_MAX, hungAfter: timeMsMax } },
          args: { task, run: id, whatIf: context.self },
          shutdown: 'kill',
        })
        context.watch(asked)
      },

      cancelWhatIf({ reply }) {
        end('cancelled')
        reply(report())
      },

      whatIfReport({ reply }) {
        reply(report())
      },

      questionSaid({ run: id, word }) {
        if (!isOf(id)) return
        if (word.kind === 'progress') run!.progress = word.progress
        else if (word.kind === 'answer') end('done', { answer: word.answer })
        else end('failed', { error: word.error })
      },

      timeIsUp({ run: id }) {
        const limit = `it took longer than ${timeMsMax / 1000} s (--what-if-timeout)`
        if (isOf(id)) fail(`${limit}; ask about fewer minutes`)
      },

      look() {
        memory.look(context.clock.nowMs())
      },

      [signal](received) {
        if (received.type === 'terminated' && received.ref.key === asked?.key) fail(whyEnded(received))
      },
    }
  },
})

/** The error that ended it, without what actors and threads add to it. */
function whyEnded({ error, reason }: Terminated): string {
  if (error === undefined) return `its thread ended: ${reason}`
  return error.cause instanceof Error ? error.cause.message : error.message
}

function viewOf({ sinceMs, ...run }: Running, nowMs: number): WhatIfRun {
  return { ...run, elapsedMs: run.state === 'running' ? nowMs - sinceMs : run.elapsedMs }
}

function keptOf(request: SettledRequest, worker: string): KeptRequest {
  const { promptTokens, outputTokens, blockSizeTokens } = request
  return {
    ...request,
    worker,
    inputTokens: promptTokens,
    outputTokens: outputTokens ?? 0,
    blockTokens: blockSizeTokens,
  }
}
