/**
 * Request lives: serves completion requests to their end, each with a record of its outcome.
 *
 *   running ──last token──▶ finished          running ──client left──▶ aborted
 *      └──fault, restart or close──▶ died
 *
 * Owns   the live requests, the log of records, and the counts by finish reason.
 * Order  of one step: its events are published before its tokens are written.
 * Abort  a client that leaves ends its sequences at once, and their blocks are released.
 * Bounds the log keeps the last LOG_MAX requests, and half as many again now and then.
 */

import type { Clock, Random } from '@homing/base'
import type { HttpExchange } from '@homing/transport'
import { type AnswerForm, CompletionAnswer } from './completion-answer.ts'
import { type CompletionKind, type CompletionRequest, RefusedRequest } from './completion-request.ts'
import type { PooledPart } from './engine-model.ts'
import type { EngineRank } from './engine-rank.ts'
import type { EngineRequestRecord } from './engine-state.ts'
import type { TokenTexts } from './engine-tokenizer.ts'
import type { EngineRole } from './handover-settings.ts'
import type { Handovers } from './handovers.ts'
import { headerOf, sendBytes } from './http-answer.ts'
import { StreamWriter } from './stream-writer.ts'

export interface RequestLivesOptions {
  readonly clock: Clock
  readonly random: Random
  readonly texts: TokenTexts
  readonly form: AnswerForm
  readonly fingerprint: string
  /** Seed of the output; a further choice of a request adds its index. */
  readonly seed: number
  readonly handovers: Handovers
  /** Where others take prompts over from this engine. */
  readonly address: () => { readonly host: string; readonly port: number }
  readonly role: EngineRole
}

/** What a request asks for, and where it is served. */
export interface RequestPlace {
  readonly exchange: HttpExchange
  readonly request: CompletionRequest
  readonly rank: EngineRank
  readonly epoch: number
  /** Another engine has computed its prompt. */
  readonly isTakenOver?: boolean
  /** By prompt: the part that was read out of the pool; undefined: there is no pool. */
  readonly pooled?: readonly (PooledPart | undefined)[] | undefined
}

/** Tokens after which a request dies or fails on demand; undefined: it does not. */
export interface StrikeAfter {
  readonly die: number | undefined
  readonly fail: number | undefined
}

type Outcome = 'finished' | 'aborted' | 'died'

interface LiveRequest {
  readonly place: RequestPlace
  readonly record: { -readonly [K in keyof EngineRequestRecord]: EngineRequestRecord[K] }
  readonly answer: CompletionAnswer
  readonly writer: StreamWriter
  readonly strike: StrikeAfter
  /** Ids of its sequences on the rank. */
  readonly sequences: string[]
}

const LOG_MAX = 10_000
const NOT_TAKEN = 'No decode engine took the prompt over in time'
/** Between the last token and the cut of a request that dies on demand. */
const FLUSH_MS = 5

export class RequestLives {
  readonly #options: RequestLivesOptions
  readonly #live = new Set<LiveRequest>()
  #records: EngineRequestRecord[] = []
  #requestsTaken = 0
  readonly #finished: Record<string, number> = { stop: 0, length: 0, abort: 0, error: 0 }

  constructor(options: RequestLivesOptions) {
    this.#options = options
  }

  get liveCount(): number {
    return this.#live.size
  }

  /** The last requests, oldest first. */
  get records(): readonly EngineRequestRecord[] {
    return this.#records
  }

  /** Requests ever taken. */
  get requestsTaken(): number {
    return this.#requestsTaken
  }

  /** Requests that ended, by finish reason. */
  get finished(): Readonly<Record<string, number>> {
    return this.#finished
  }

  /** Cuts a request before the first byte of its answer. */
  refuseToLive(place: RequestPlace): void {
    this.#addRecord(this.#newRecord(place, this.#newId(place), 'died'))
    place.exchange.destroy()
  }

  /** Serves a request to its end; the answer is written as tokens come. */
  run(place: RequestPlace, strike: StrikeAfter): void {
    const { exchange, request, rank, epoch } = place
    const { clock, texts, seed, form, fingerprint } = this.#options
    const id = this.#newId(place)
    const { isTakenOver = false, pooled } = place
    const createdSeconds = Math.floor(clock.wallMs() / 1000)
    const live: LiveRequest = {
      place,
      record: this.#newRecord(place, id, 'running'),
      answer: new CompletionAnswer({ id, request, texts, createdSeconds, form, fingerprint }),
      writer: new StreamWriter(exchange),
      strike,
      sequences: [],
    }
    this.#addRecord(live.record)
    this.#live.add(live)
    exchange.onClientGone(() => this.#end(live, 'aborted', 'abort'))
    if (request.isStream) {
      exchange.writeHead(200, {
        'content-type': 'text/event-stream; charset=utf-8',
        'cache-control': 'no-cache',
      })
    }
    for (const [promptIndex, promptIds] of request.prompts.entries()) {
      for (let choice = 0; choice < request.choicesCount; choice++) {
        const index = live.sequences.length
        const sequence = `${epoch}/${this.#requestsTaken}/${id}/${index}`
        live.sequences.push(sequence)
        rank.submit(
          {
            id: sequence,
            promptIds,
            outputTokens: request.outputTokens[promptIndex]!,
            namespace: { loraName: request.loraName, cacheSalt: request.cacheSalt },
            seed: seed + choice,
            sessionId: request.sessionId,
            reportFull: request.reportsFull,
            ...(isTakenOver ? { handedTokens: promptIds.length - 1 } : {}),
            pooled: pooled?.[promptIndex],
          },
          token => this.#takeToken(live, index, token),
        )
      }
    }
  }

  /** The answer is whole: its prompt is held for another engine, or that one is waited for, if asked for. */
  #handOver(live: LiveRequest): void {
    const { answer, record, place, writer } = live
    const { exchange, request, epoch } = place
    const { handovers, address, role } = this.#options
    const wish = request.handover
    const finish = (): void => {
      this.#end(live, 'finished', request.finishReason)
      if (request.isStream) writer.end(answer.streamEnd())
      else sendBytes(exchange, 200, answer.body())
    }
    if (wish?.kind === 'offer' && answer.isCutShort) {
      handovers.hold(record.id)
      const { host, port } = address()
      answer.handsOver({
        do_remote_prefill: true,
        do_remote_decode: false,
        remote_block_ids: [[epoch]],
        remote_engine_id: `engine-${epoch}`,
        remote_request_id: record.id,
        remote_host: host,
        remote_port: port,
        tp_size: 1,
      })
    }
    if (wish?.kind !== 'meet' || role !== 'prefill') {
      finish()
      return
    }
    void handovers.computed(wish.room).then(isTaken => {
      if (!this.#live.has(live)) return
      if (isTaken) {
        finish()
        return
      }
      this.#end(live, 'died', 'error')
      if (request.isStream) exchange.destroy()
      else sendBytes(exchange, 500, new RefusedRequest(500, 'InternalServerError', NOT_TAKEN).body())
    })
  }

  /** Cuts every live request. */
  cutAll(): void {
    for (const live of [...this.#live]) {
      this.#end(live, 'died', 'error')
      live.place.exchange.destroy()
    }
  }

  #takeToken(
    live: LiveRequest,
    index: number,
    token: { tokenId: number; isLast: boolean; cachedTokens: number },
  ): void {
    if (!this.#live.has(live)) return
    const { answer, writer, strike, sequences } = live
    const { exchange, request, rank } = live.place
    const state = answer.push(index, token, text => writer.write(text))
    if (state === 'stopped') rank.abort(sequences[index]!)
    if (answer.isComplete) {
      this.#handOver(live)
      return
    }
    const tokens = answer.outputTokens
    if (strike.die !== undefined && tokens >= strike.die) {
      this.#end(live, 'died', 'error')
      // A cut connection loses unsent bytes; the tokens before the cut must arrive.
      this.#options.clock.after(FLUSH_MS, () => exchange.destroy())
    } else if (strike.fail !== undefined && tokens >= strike.fail) {
      this.#end(live, 'died', 'error')
      const failure = failureOnDemand().body()
      if (request.isStream) writer.end(`data: ${new TextDecoder().decode(failure)}\n\ndata: [DONE]\n\n`)
      else sendBytes(exchange, 500, failure)
    }
  }

  /** Ends a request that is live; nothing when it is not. The answer is the caller's to end. */
  #end(live: LiveRequest, outcome: Outcome, reason: string): void {
    if (!this.#live.delete(live)) return
    const { record, answer, place, sequences } = live
    const wish = place.request.handover
    if (wish?.kind === 'meet' && this.#options.role === 'prefill') this.#options.handovers.close(wish.room)
    for (const sequence of sequences) place.rank.abort(sequence)
    record.outcome = outcome
    record.outputTokens = answer.outputTokens
    record.cachedTokens = answer.cachedTokens
    this.#finished[reason]!++
  }

  #newId({ exchange, request }: RequestPlace): string {
    const prefix: Record<CompletionKind, string> = {
      chat: 'chatcmpl',
      text: 'cmpl',
      responses: 'resp',
      messages: 'msg',
    }
    const own = headerOf(exchange, 'x-request-id') ?? hexOf(this.#options.random.bytes(16))
    return `${prefix[request.kind]}-${own}`
  }

  #newRecord(place: RequestPlace, id: string, outcome: 'running' | 'died'): LiveRequest['record'] {
    const { exchange, request, rank, epoch } = place
    return {
      id,
      requestId: headerOf(exchange, 'x-request-id') ?? null,
      model: request.model,
      rank: rank.rank,
      promptTokens: request.prompts.reduce((sum, prompt) => sum + prompt.length, 0),
      cachedTokens: 0,
      outputTokens: 0,
      outcome,
      epoch,
    }
  }

  #addRecord(record: EngineRequestRecord): void {
    this.#requestsTaken++
    this.#records.push(record)
    // Cut in halves: dropping one at a time would copy the log for every request.
    if (this.#records.length > LOG_MAX * 1.5) this.#records = this.#records.slice(-LOG_MAX)
  }
}

/** The answer to a request that fails on demand. */
export function failureOnDemand(): RefusedRequest {
  return new RefusedRequest(500, 'InternalServerError', 'The engine failed on demand')
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex')
}
