/**
 * What if: keeps the requests of the last minutes, and simulates them with another fleet or policy.
 *
 * In     `settled` from the router; the fleet; questions, cancellations and looks of the console.
 * Out    to one actor per question (question.ts), on its own thread: the kept requests, as memory that both
 *        can read.
 * Owns   the kept requests, the run that is under way, the last answer.
 * Bounds bytes and age of what is kept (request-memory.ts); one run at a time; the run's blocks
 *        (read-kept.ts), time, heap and share of a core; the mailbox. Requests that find no room are counted;
 *        requests that no worker took are not kept.
 * Fails  a question that ends without an answer fails its run. Its reports arrive even if the mailbox is full
 *        of other messages. After a restart no requests are kept, and the run is gone.
 * Thread main: keeping a request only copies its hashes. A question runs on its own thread.
 */

import {
  type ActorContext,
  type ActorDefinition,
  type ActorRef,
  defineActor,
  signal,
  type Terminated,
} from '@homing/actor'
import type { SettledRequest } from '@homing/actors/decision-log'
import { toErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { type KeptRequest, RequestMemory, type WhatIfTask } from '@homing/simulate/what-if'
import { type LoggedWorker, loggedWorkers } from '@homing/trace'
import { WhatIfBusyError, WhatIfFailedError } from './errors.ts'
import type { WhatIfMessage, WhatIfQuestion, WhatIfReport, WhatIfRun } from './messages.ts'
import { type QuestionArgs, type QuestionMessage, questionActor } from './question.ts'
import type { WhatIfArgs } from './what-if-args.ts'

const WHAT_IF_LOOK_MS = 10_000
const LOADS_ASK_MS_MAX = 5000
const ID_BYTES = 6
/** Heap of a question, which uses about half; the runtime ends a thread whose heap stays 0.7 full. */
const HEAP_MB_MAX = 1024

type MessageOf<T extends WhatIfMessage['type']> = Extract<WhatIfMessage, { readonly type: T }>
type Running = { -readonly [K in keyof WhatIfRun]: WhatIfRun[K] } & { readonly sinceMs: number }

export const whatIf = defineActor(
  import.meta.url,
  'whatIf',
)<WhatIfMessage, WhatIfArgs>({
  reentrant: true,
  // There is room for it while requests fill the mailbox.
  control: ['questionSaid'],
  setup(context, args) {
    const state = new WhatIf(context, args)
    context.scheduleEvery(WHAT_IF_LOOK_MS, { type: 'look' })
    return {
      fleet: ({ fleet }) => state.takeFleet(fleet),
      settled: ({ request, number }) => state.settled(request, number),
      askWhatIf: ({ question, reply }) => state.ask(question, reply),
      cancelWhatIf: ({ reply }) => reply(state.cancel()),
      whatIfReport: ({ reply }) => reply(state.report()),
      questionSaid: ({ run, word }) => state.heard(run, word),
      timeIsUp: ({ run }) => state.timeIsUp(run),
      look: () => state.look(),
      [signal](event) {
        if (event.type === 'terminated') state.questionEnded(event)
      },
    }
  },
})

class WhatIf {
  readonly #context: ActorContext<WhatIfMessage>
  readonly #args: WhatIfArgs
  readonly #memory: RequestMemory
  readonly #answering: ActorDefinition<QuestionMessage, QuestionArgs>
  #workers: readonly LoggedWorker[] = []
  /** Number of the next settled request. */
  #expected: number | undefined
  #lost = 0
  /**
   * The clock of the computer, set back or forth since the router began, is so much ahead of the times of
   * requests.
   */
  #aheadMs = 0
  #endOfTime: { cancel(): void } | undefined
  #run: Running | undefined
  #asked: ActorRef<never> | undefined
  readonly #ended = { done: 0, cancelled: 0, failed: 0 }
  #cpuMs = 0

  constructor(context: ActorContext<WhatIfMessage>, args: WhatIfArgs) {
    this.#context = context
    this.#args = args
    this.#memory = new RequestMemory({ bytesMax: args.bytesMax, ageMsMax: args.minutesMax * 60_000 })
    this.#answering = context.use(questionActor)
  }

  takeFleet({ workers }: Fleet): void {
    this.#workers = loggedWorkers(workers)
  }

  settled(request: SettledRequest, number: number): void {
    const { clock } = this.#context
    // A lower number: the router has begun anew.
    if (this.#expected !== undefined && number > this.#expected) this.#lost += number - this.#expected
    this.#expected = number + 1
    this.#aheadMs = clock.wallMs() - request.arrivedAtMs - request.totalMs
    const { worker } = request
    if (request.wasTaken && worker !== undefined) this.#memory.keep(keptOf(request, worker), clock.nowMs())
  }

  async ask(question: WhatIfQuestion, reply: MessageOf<'askWhatIf'>['reply']): Promise<void> {
    const { clock, random } = this.#context
    const { tracker, timeMsMax, selection, cpuShare } = this.#args
    const nowMs = clock.nowMs()
    if (this.#run?.state === 'running') {
      reply(toErrorRecord(new WhatIfBusyError(this.#run.id, nowMs - this.#run.sinceMs)))
      return
    }
    const wallMs = clock.wallMs()
    const id = Buffer.from(random.bytes(ID_BYTES)).toString('hex')
    this.#run = {
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
    this.#memory.look(nowMs)
    this.#endOfTime = this.#context.schedule(timeMsMax, { type: 'timeIsUp', run: id })
    reply(this.report())
    const loads = await tracker.ask({ type: 'loads' }, { timeout: LOADS_ASK_MS_MAX }).catch(() => undefined)
    if (!this.#isOf(id)) return
    this.#spawn(id, {
      kept: this.#memory.kept,
      sinceMs: wallMs - this.#aheadMs - question.minutes * 60_000,
      workers: this.#workers,
      selection,
      profile: question.profile,
      learned: Object.fromEntries((loads?.rows ?? []).map(({ worker, learned }) => [worker, learned])),
      anyway: question.anyway,
      cpuShare,
    })
  }

  cancel(): WhatIfReport {
    this.#end('cancelled')
    return this.report()
  }

  report(): WhatIfReport {
    const { bytesMax, minutesMax, cpuShare, timeMsMax } = this.#args
    const { requests, bytes, refused, oldestMs } = this.#memory.status
    const run = this.#run
    return {
      kept: {
        requests,
        bytes,
        bytesMax,
        minutesMax,
        dropped: refused + this.#lost,
        oldestMs: oldestMs === undefined ? undefined : oldestMs + this.#aheadMs,
      },
      cpuShare,
      timeMsMax,
      run: run === undefined ? undefined : viewOf(run, this.#context.clock.nowMs()),
      ended: { ...this.#ended },
      cpuMs: this.#cpuMs + (run?.state === 'running' ? (run.progress?.cpuMs ?? 0) : 0),
    }
  }

  heard(id: string, word: MessageOf<'questionSaid'>['word']): void {
    if (!this.#isOf(id)) return
    if (word.kind === 'progress') this.#run!.progress = word.progress
    else if (word.kind === 'answer') this.#end('done', { answer: word.answer })
    else this.#end('failed', { error: word.error })
  }

  timeIsUp(id: string): void {
    const limit = `it took longer than ${this.#args.timeMsMax / 1000} s (--what-if-timeout)`
    if (this.#isOf(id)) this.#fail(`${limit}; ask about fewer minutes`)
  }

  look(): void {
    this.#memory.look(this.#context.clock.nowMs())
  }

  questionEnded(event: Terminated): void {
    if (event.ref.key === this.#asked?.key) this.#fail(whyEnded(event))
  }

  #spawn(run: string, task: WhatIfTask): void {
    const { self } = this.#context
    this.#asked = this.#context.spawn(this.#answering, {
      name: 'question',
      // At the lowest priority it may be without a core for long: only its time bounds it.
      thread: { dedicated: { heapMb: HEAP_MB_MAX, hungAfter: this.#args.timeMsMax } },
      args: { task, run, whatIf: self },
      shutdown: 'kill',
    })
    this.#context.watch(this.#asked)
  }

  #fail(reason: string): void {
    this.#end('failed', { error: toErrorRecord(new WhatIfFailedError(reason)) })
  }

  #end(state: 'done' | 'cancelled' | 'failed', more: Partial<Running> = {}): void {
    const run = this.#run
    if (run?.state !== 'running') return
    if (this.#asked !== undefined) this.#context.stop(this.#asked)
    this.#asked = undefined
    this.#endOfTime?.cancel()
    this.#ended[state]++
    this.#cpuMs += more.answer?.cpuMs ?? run.progress?.cpuMs ?? 0
    Object.assign(run, more, { state, elapsedMs: this.#context.clock.nowMs() - run.sinceMs })
  }

  /** Whether `id` is the current run: reports of earlier runs are ignored. */
  #isOf(id: string): boolean {
    return this.#run?.id === id && this.#run.state === 'running'
  }
}

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
