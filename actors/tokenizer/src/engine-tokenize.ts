/**
 * Engines' `/tokenize`: asked over HTTP, so that no engine which is silent makes a request wait for long.
 *
 *   first engine   ├──────────────── silent ───────────────────┤ given up, set aside
 *   second engine       ├─ answer ─┤ the request goes on
 *                  hedgeMs         └── as long again, or hedgeMs, is the first one's last chance
 *
 * Invariants
 *   I1  While one engine of a model answers, a request waits for it, and `hedgeMs` for each silent one that
 *       was asked before it.
 *   I2  An engine that did not answer in time is set aside: for SET_ASIDE_MS_MIN, and twice as long each time
 *       after that, up to SET_ASIDE_MS_MAX. Then one request asks it beside another engine, without waiting
 *       for it. Any answer ends that.
 *   I3  Where all engines of a model are set aside, a request waits `hedgeMs` at most, and only one that is
 *       the first after that time.
 *   I4  However many requests wait for a silent engine, none of them does longer than `timeoutMs` after it
 *       fell silent.
 *
 * An engine that cannot be reached or answers 5xx, as one that starts again, is no reason to know a prompt as
 * text only: another one is asked at once, but a second fault ends it. Such answers are quick, so that
 * engine is not set aside.
 *
 * Bounds   ENGINES_ASKED_MAX questions for a prompt; a record for each engine of the fleet.
 */

import type { ActorContext } from '@homing/actor'
import type { Timer } from '@homing/base'
import { HttpCallError, transportCapability } from '@homing/transport'
import type { TokenizerMessage } from './messages.ts'

/** Two million ids as JSON. */
const REPLY_BYTES_MAX = 16 * 2 ** 20
const ENGINES_ASKED_MAX = 4
/** Engines at fault that are found out for one prompt. */
const FAULTS_MAX = 2
const SET_ASIDE_MS_MIN = 1000
const SET_ASIDE_MS_MAX = 60_000
/**
 * A further engine is asked after this many times what answers usually take, if that is more than `hedgeMs`.
 */
const USUAL_TIMES_MAX = 2
const USUAL_WEIGHT = 0.1

export interface TokenizeQuestion {
  /** Engines that can be asked; one is drawn, and if that fails the next. */
  readonly origins: readonly string[]
  readonly tokenizeBody: Uint8Array
}

export interface TokenizingEnginesOptions {
  /** Longest wait for an answer, in milliseconds. */
  readonly timeoutMs: number
  /**
   * Shortest wait for an engine before the next one is asked as well, in milliseconds; 0: that is not done.
   */
  readonly hedgeMs: number
}

/** What is remembered of an engine. */
interface EngineRecord {
  openCount: number
  /** Since when it owes an answer and gave none; undefined: it owes none. */
  silentSinceMs: number | undefined
  aside: { readonly forMs: number; readonly untilMs: number; isTried: boolean } | undefined
}

interface NoTokens {
  readonly why: string
  readonly cause?: unknown
  /** Another engine may answer. */
  readonly isEnginesFault: boolean
  readonly isTimeout?: boolean
}

type Answer = { readonly body: Uint8Array } | NoTokens

/** Asks engines to tokenize, and remembers those that do not answer in time. */
export class TokenizingEngines {
  /** Questions to a further engine because those asked before had not answered. */
  hedges = 0
  readonly #context: ActorContext<TokenizerMessage>
  readonly #options: TokenizingEnginesOptions
  /** Moving mean of what answers with tokens take, over all engines. */
  #usualMs = 0
  readonly #records = new Map<string, EngineRecord>()

  constructor(context: ActorContext<TokenizerMessage>, options: TokenizingEnginesOptions) {
    this.#context = context
    this.#options = options
  }

  /** Engines that are set aside now. */
  get setAside(): readonly string[] {
    return Array.from(this.#records)
      .filter(([, { aside }]) => aside !== undefined)
      .map(([origin]) => origin)
  }

  /** Forgets all other engines. */
  retain(origins: Pick<ReadonlySet<string>, 'has'>): void {
    for (const origin of this.#records.keys()) if (!origins.has(origin)) this.#records.delete(origin)
  }

  /** The body of the reply. Rejects with one line that names the engine. */
  async ask({ origins, tokenizeBody }: TokenizeQuestion): Promise<Uint8Array> {
    const nowMs = this.#context.clock.nowMs()
    const first = this.#context.random.below(origins.length)
    const drawn = [...origins.slice(first), ...origins.slice(0, first)]
    const asides = drawn.flatMap(origin => this.#records.get(origin)?.aside ?? [])
    const willing = drawn.filter(origin => this.#records.get(origin)?.aside === undefined)
    const tried = drawn.find(origin => {
      const aside = this.#records.get(origin)?.aside
      return aside !== undefined && !aside.isTried && aside.untilMs <= nowMs
    })
    if (willing.length > 0) return this.#race(willing.slice(0, ENGINES_ASKED_MAX), tried, tokenizeBody)
    if (tried !== undefined) return this.#try(tried, tokenizeBody)
    const againMs = Math.max(0, Math.min(...asides.map(aside => aside.untilMs)) - nowMs)
    throw new Error(
      `${drawn[0]}/tokenize did not answer in time before; it is asked again in ${Math.ceil(againMs)} ms`,
    )
  }

  /** The same of one engine, drawn from all, for a check that has time: it changes nothing here. */
  async askOne({ origins, tokenizeBody }: TokenizeQuestion): Promise<Uint8Array> {
    const origin = origins[this.#context.random.below(origins.length)]!
    const answer = await this.#answer(origin, tokenizeBody, this.#options.timeoutMs, undefined)
    if ('why' in answer) throw new Error(answer.why, { cause: answer.cause })
    return answer.body
  }

  /** Asks `origins` one after the other, each as soon as the one before is late or at fault. */
  #race(origins: readonly string[], tried: string | undefined, body: Uint8Array): Promise<Uint8Array> {
    const { clock } = this.#context
    const { timeoutMs } = this.#options
    const hedgeMs = this.#hedgeMs()
    const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>()
    const startMs = clock.nowMs()
    const open = new Map<string, AbortController>()
    const waiting = [...origins]
    let faults = 0
    let isOver = false
    let hedge: Timer | undefined

    const end = (): void => {
      isOver = true
      hedge?.cancel()
      if (open.size === 0) return
      // What has not answered by then was asked before the winner, or with it.
      const chanceMs = Math.max(hedgeMs, clock.nowMs() - startMs)
      clock.after(chanceMs, () => open.forEach(asked => void asked.abort()), { unref: true })
    }
    const next = (): void => {
      hedge?.cancel()
      const origin = waiting.shift()
      if (origin === undefined) return
      void start(origin)
      if (this.#options.hedgeMs === 0 || waiting.length === 0) return
      hedge = clock.after(hedgeMs, () => {
        this.hedges++
        next()
      })
    }
    const start = async (origin: string): Promise<void> => {
      const stop = new AbortController()
      open.set(origin, stop)
      const leftMs = Math.max(1, startMs + timeoutMs - clock.nowMs())
      const answer = await this.#question(origin, body, leftMs, stop.signal)
      open.delete(origin)
      if (isOver) return
      if (!('why' in answer)) resolve(answer.body)
      else {
        const isTrial = origin === tried
        if (answer.isEnginesFault && !isTrial) {
          faults++
          if (faults < FAULTS_MAX && clock.nowMs() < startMs + timeoutMs) next()
        }
        const isFinal = !answer.isEnginesFault && !isTrial
        // No request waits for an engine on trial.
        if (!isFinal && [...open.keys()].some(other => other !== tried)) return
        reject(new Error(answer.why, { cause: answer.cause }))
      }
      end()
    }
    if (tried !== undefined) void start(tried)
    next()
    return promise
  }

  /**
   * Asks an engine that is set aside where there is no other; its answer may come when no request waits for
   * it.
   */
  async #try(origin: string, body: Uint8Array): Promise<Uint8Array> {
    const late = Promise.withResolvers<NoTokens>()
    const timer = this.#context.clock.after(this.#hedgeMs(), () =>
      late.resolve({ why: `${origin}/tokenize is still silent`, isEnginesFault: true }),
    )
    const answered = this.#question(origin, body, this.#options.timeoutMs, undefined)
    const answer = await Promise.race([answered, late.promise])
    timer.cancel()
    if ('why' in answer) throw new Error(answer.why, { cause: answer.cause })
    return answer.body
  }

  /** Engines that are all slow are not helped by further questions: then each gets more time. */
  #hedgeMs(): number {
    return Math.max(this.#options.hedgeMs, USUAL_TIMES_MAX * this.#usualMs)
  }

  /** Asks an engine, and remembers whether it answered in time. Never rejects. */
  async #question(
    origin: string,
    body: Uint8Array,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Answer> {
    const { clock } = this.#context
    let record = this.#records.get(origin)
    if (record === undefined) {
      record = { openCount: 0, silentSinceMs: undefined, aside: undefined }
      this.#records.set(origin, record)
    }
    if (record.aside !== undefined) record.aside.isTried = true
    record.openCount++
    const askedMs = clock.nowMs()
    record.silentSinceMs ??= askedMs
    const leftMs = Math.max(1, record.silentSinceMs + this.#options.timeoutMs - askedMs)
    const answer = await this.#answer(origin, body, Math.min(timeoutMs, leftMs), signal)
    record.openCount--
    const isSilent = 'why' in answer && answer.isTimeout === true
    if (!isSilent || record.openCount === 0)
      record.silentSinceMs = record.openCount === 0 ? undefined : clock.nowMs()
    if (!('why' in answer)) this.#usualMs += USUAL_WEIGHT * (clock.nowMs() - askedMs - this.#usualMs)
    if (isSilent) this.#putAside(origin, record)
    else if (record.aside !== undefined) {
      record.aside = undefined
      this.#context.log.info({ origin }, 'engine tokenizes in time again')
    }
    return answer
  }

  #putAside(origin: string, record: EngineRecord): void {
    const { aside } = record
    // Of many questions that were under way together, the first one counts.
    if (aside !== undefined && !aside.isTried) return
    const forMs = aside === undefined ? SET_ASIDE_MS_MIN : Math.min(aside.forMs * 2, SET_ASIDE_MS_MAX)
    record.aside = { forMs, untilMs: this.#context.clock.nowMs() + forMs, isTried: false }
    if (aside === undefined)
      this.#context.log.warn({ origin, againMs: forMs }, 'engine does not tokenize in time; it is set aside')
  }

  async #answer(
    origin: string,
    body: Uint8Array,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Answer> {
    const headers = { 'content-type': 'application/json' }
    const request = { origin, method: 'POST', path: '/tokenize', headers, body }
    const limits = { timeoutMs, maxBytes: REPLY_BYTES_MAX, ...(signal && { signal }) }
    try {
      const reply = await this.#context.use(transportCapability).http.fetch(request, limits)
      if (reply.status === 200) return { body: reply.body }
      const why = `${origin}/tokenize answered ${reply.status}`
      return { why, isEnginesFault: reply.status >= 500 }
    } catch (thrown) {
      const why = `${origin}/tokenize: ${(thrown as Error).message}`
      const failure = thrown instanceof HttpCallError ? thrown.failure : undefined
      const isTimeout = failure === 'timeout' || failure === 'aborted'
      return { why, cause: thrown, isEnginesFault: true, isTimeout }
    }
  }
}
