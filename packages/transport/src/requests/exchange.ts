/**
 * Request exchange: one call as its server sees it, whose frames something carries (frames.ts).
 *
 * Bounds   at most `windowBytes` of a body are under way; only the reader of a body keeps it. Of an answer,
 *          only the bytes wait here that its writer writes although it was told to wait.
 */

import { faultOfAnswerHead } from '../answer-head.ts'
import { callOwner } from '../callback.ts'
import { ClientGoneError, MalformedHttpError } from '../errors.ts'
import type { BodyRoom, ClientGoneReason, HttpEnd, HttpHeaders, ServedExchange } from '../http-types.ts'
import { RequestBody } from './body.ts'
import { FRAME, type FrameKind, type FrameSink, type OpenWord } from './frames.ts'
import { PieceSender } from './piece-sender.ts'

/** Short enough for any frame, so that the end of an answer is never lost with its reason. */
const REASON_CHARACTERS_MAX = 300

export interface RequestExchangeArgs {
  readonly sink: FrameSink
  readonly open: OpenWord
  /** '' where it is not known. */
  readonly peerAddress: string
  readonly windowBytes: number
  readonly bodySilenceMsMax: number
  /** Nothing more of it is heard or said. */
  readonly ended: () => void
}

export class RequestExchange implements ServedExchange {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers: HttpHeaders
  readonly peerAddress: string
  readonly #args: RequestExchangeArgs
  readonly #sink: FrameSink
  readonly #answer: PieceSender
  #body: RequestBody
  #isEnding: { readonly how: HttpEnd } | undefined
  #isClosed = false
  /** Its client left before the answer was complete. */
  #isGone = false
  readonly #onGone: ((reason: ClientGoneReason) => void)[] = []
  #onDrain: (() => void) | undefined
  readonly #onOver: (() => void)[] = []

  constructor(args: RequestExchangeArgs) {
    const { open, sink, peerAddress } = args
    const [path, query] = split(open.path)
    this.method = open.method
    this.path = path
    this.query = query
    this.headers = open.headers
    this.#args = args
    this.peerAddress = peerAddress
    this.#sink = sink
    this.#answer = new PieceSender(sink, FRAME.data)
    this.#body = new RequestBody(open.bodyBytes, args, bytes => this.#creditBody(bytes))
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** So much of the answer may go out, and of the body `first` came along. */
  accept(first: readonly Uint8Array[] = []): void {
    this.#answer.credit(this.#args.open.windowBytes)
    for (const bytes of first) this.#body.put(bytes, false)
  }

  readBody(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    return this.#body.read(maxBytes, room)
  }

  onClientGone(callback: (reason: ClientGoneReason) => void): void {
    if (this.#isGone) queueMicrotask(() => callOwner(() => callback('left')))
    else this.#onGone.push(callback)
  }

  writeHead(status: number, headers: HttpHeaders): void {
    if (this.#isClosed) return
    const fault = faultOfAnswerHead(status, headers)
    if (fault !== undefined) this.fail(fault)
    else if (!this.#sink.put(FRAME.head, { status, headers }))
      this.fail(`the headers of the answer are too large: ${this.#sink.refusal}`)
  }

  write(bytes: Uint8Array): boolean {
    if (this.#isClosed) return false
    this.#answer.put(bytes)
    return this.#answer.waitingBytes === 0
  }

  onOver(callback: () => void): void {
    if (this.#isClosed) queueMicrotask(() => callOwner(callback))
    else this.#onOver.push(callback)
  }

  onDrain(callback: () => void): void {
    this.#onDrain = callback
    if (!this.#isClosed && this.#answer.waitingBytes === 0) queueMicrotask(() => this.#drained())
  }

  end(bytes?: Uint8Array, how: HttpEnd = 'framed'): void {
    if (this.#isClosed || this.#isEnding !== undefined) return
    if (bytes !== undefined) this.#answer.put(bytes)
    this.#isEnding = { how }
    this.#drained()
  }

  destroy(reason = 'the worker cut the answer'): void {
    this.fail(reason)
  }

  // ── What the server does ────────────────────────────────────────────────────────────────────

  frame(kind: FrameKind, content: unknown): void {
    if (this.#isClosed) return
    if (kind === FRAME.cancel) this.gone()
    else if (kind === FRAME.body) this.#body.put(content as Uint8Array, true)
    else if (kind === FRAME.credit) {
      this.#answer.credit(content as number)
      this.#drained()
    }
  }

  /** Every BODY_LOOK_MS. */
  look(): void {
    this.#body.look()
  }

  /** More fits into the network again. */
  unblocked(): void {
    this.#answer.goOn()
    this.#drained()
  }

  /** The client has left. */
  gone(): void {
    if (!this.#over()) return
    this.#isGone = true
    this.#body.fail(new ClientGoneError('read the body'))
    for (const callback of this.#onGone.splice(0)) callOwner(() => callback('left'))
  }

  /** There will be no whole answer. */
  fail(reason: string): void {
    if (!this.#over()) return
    this.#sink.put(FRAME.failed, {
      reason: reason.slice(0, REASON_CHARACTERS_MAX),
      wasSeen: true,
    })
    this.#body.fail(new MalformedHttpError(reason))
    for (const callback of this.#onGone.splice(0)) callOwner(() => callback('left'))
  }

  /** True: it was open. */
  #over(): boolean {
    if (this.#isClosed) return false
    this.#isClosed = true
    this.#answer.clear()
    this.#onDrain = undefined
    this.#args.ended()
    for (const callback of this.#onOver.splice(0)) callOwner(callback)
    return true
  }

  #creditBody(bytes: number): void {
    if (!this.#isClosed) this.#sink.put(FRAME.credit, bytes)
  }

  #drained(): void {
    if (this.#isClosed || this.#answer.waitingBytes > 0) return
    if (this.#isEnding !== undefined) {
      this.#sink.put(FRAME.end, this.#isEnding.how === 'closed' ? 1 : 0)
      this.#onGone.length = 0
      this.#over()
      return
    }
    const callback = this.#onDrain
    this.#onDrain = undefined
    if (callback !== undefined) callOwner(callback)
  }
}

function split(target: string): readonly [string, string] {
  const at = target.indexOf('?')
  return at === -1 ? [target, ''] : [target.slice(0, at), target.slice(at + 1)]
}
