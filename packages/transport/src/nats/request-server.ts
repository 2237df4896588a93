/**
 * Request server: HTTP exchanges whose clients are at a broker (request-client.ts, request-wire.ts).
 *
 * If several servers share a subject, the broker chooses one for each request. A router takes them for one
 * worker, so its knowledge of their blocks is wrong. Each server announces itself under SUBJECT.served, and
 * warns when it hears another. A client has left if it cancels, is not heard for SILENCE_LOOKS looks, or
 * cannot be heard because the connection to the broker ended.
 *
 * Bounds   `callsMax` exchanges; further requests are answered with 503. At most `windowBytes` of a body are
 *          under way; only the reader of a body keeps it. Of an answer, only the bytes wait here that its
 *          writer writes although it was told to wait.
 */

import type { Clock, Timer } from '@homing/base'
import { faultOfAnswerHead } from '../answer-head.ts'
import { callFor, callOwner } from '../callback.ts'
import { BodyTimeoutError, BodyTooLargeError, ClientGoneError, MalformedHttpError } from '../errors.ts'
import type {
  BodyRoom,
  ClientGoneReason,
  HttpEnd,
  HttpHeaders,
  ServedExchange,
  ServeOptions,
  ServingListener,
} from '../types.ts'
import type { Broker, BrokerLink } from './broker.ts'
import { BEAT_MS } from './lives.ts'
import { SILENCE_LOOKS } from './request-client.ts'
import { PieceSender } from './request-sender.ts'
import {
  CALL_BYTES,
  type CallPayload,
  countFrame,
  decodeCallPayload,
  FRAME,
  type Frame,
  FrameWriter,
  headersOf,
  isWindow,
  jsonFrame,
  PIECE_BYTES,
  readCountFrame,
  readJsonFrame,
  VERSION,
} from './request-wire.ts'

const BODY_WINDOW_BYTES = 2 ** 20
const CALLS_MAX = 4096
/** So many others under one's subject are told of. */
const OTHERS_MAX = 8
const INBOX_BYTES_MAX = 200
/**
 * Short enough for the payloads of any broker, so that the end of an answer is never lost with its reason.
 */
const REASON_CHARACTERS_MAX = 300
const NO_CALL = '0'.repeat(2 * CALL_BYTES)

export interface RequestServerEnvironment {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  readonly broker: Broker
  readonly servers: readonly string[]
  readonly subject: string
}

export class RequestServer implements ServingListener {
  readonly #options: ServeOptions
  readonly #environment: RequestServerEnvironment
  readonly #onExchange: (exchange: ServedExchange) => void
  readonly #leave: () => void
  readonly #open = new Map<string, BrokerExchange>()
  #link: BrokerLink | undefined
  #inbox = ''
  #stopServing: (() => void) | undefined
  /** Inboxes of others that serve the same subject. */
  readonly #others = new Set<string>()
  #timer: Timer | undefined
  #isClosing = false
  #closed: Promise<void> | undefined
  #onIdle: (() => void) | undefined

  constructor(
    options: ServeOptions,
    environment: RequestServerEnvironment,
    onExchange: (exchange: ServedExchange) => void,
  ) {
    this.#options = options
    this.#environment = environment
    this.#onExchange = onExchange
    const { broker, servers, log } = environment
    this.#leave = broker.join({
      up: link => this.#up(link),
      down: () => this.#down(),
      failed: reason => log.warn({ servers, reason }, 'NATS connection failed'),
    })
  }

  get openCount(): number {
    return this.#open.size
  }

  close(graceMs: number): Promise<void> {
    this.#closed ??= this.#close(graceMs)
    return this.#closed
  }

  async #close(graceMs: number): Promise<void> {
    this.#isClosing = true
    this.#stopServing?.()
    if (this.#open.size > 0 && graceMs > 0) {
      let timer: Timer | undefined
      await new Promise<void>(resolve => {
        this.#onIdle = resolve
        timer = this.#environment.clock.after(graceMs, resolve)
      })
      timer?.cancel()
    }
    for (const exchange of [...this.#open.values()]) exchange.destroy()
    this.#timer?.cancel()
    // Words of this turn still go out.
    queueMicrotask(this.#leave)
  }

  #up(link: BrokerLink): void {
    const { broker, subject } = this.#environment
    this.#link = link
    this.#inbox = broker.newInbox()
    link.subscribe(this.#inbox, { message: payload => this.#heard(payload) })
    if (this.#isClosing) return
    const queue = 'homing'
    const stopAsking = link.subscribe(subject, { message: (...told) => this.#asked(link, ...told) }, queue)
    const served = `${subject}.served`
    const stopHearing = link.subscribe(served, { message: payload => this.#otherHeard(link, payload) })
    this.#stopServing = () => {
      stopAsking()
      stopHearing()
    }
    link.publish(served, Buffer.from(this.#inbox))
  }

  /** Somebody says that it serves our subject: ourselves, or another, who should hear of us as well. */
  #otherHeard(link: BrokerLink, payload: Uint8Array): void {
    const inbox = payload.length > INBOX_BYTES_MAX ? '' : Buffer.from(payload).toString()
    if (inbox === '' || inbox === this.#inbox || this.#others.has(inbox) || this.#others.size >= OTHERS_MAX)
      return
    this.#others.add(inbox)
    const { log, subject } = this.#environment
    log.warn(
      { subject },
      'another process serves the same subject: each request goes to one of them; give each its own subject',
    )
    link.publish(`${subject}.served`, Buffer.from(this.#inbox))
  }

  #down(): void {
    this.#link = undefined
    this.#stopServing = undefined
    for (const exchange of [...this.#open.values()]) exchange.gone()
  }

  #asked(link: BrokerLink, bytes: Uint8Array, reply: string): void {
    const payload = decodeCallPayload(bytes)
    // Nobody waits for an answer.
    if (reply === '' || this.#link !== link) return
    if (typeof payload !== 'object') {
      const reason =
        payload === undefined
          ? 'it is no request'
          : `its request plane is of version ${payload}, not ${VERSION}`
      this.#refuse(link, NO_CALL, reply, reason)
      return
    }
    const [first, ...rest] = payload.frames
    const open = first?.kind === FRAME.open ? openOf(first.bytes) : undefined
    const isWhole = rest.every(({ kind }) => kind === FRAME.body)
    if (open === undefined || !isWhole || payload.sequence !== 0 || this.#open.has(payload.call))
      this.#refuse(link, payload.call, reply, 'its request cannot be read')
    else this.#accept(link, payload, open, reply)
  }

  #accept(link: BrokerLink, { call, frames }: CallPayload, open: OpenWord, reply: string): void {
    const {
      callsMax = CALLS_MAX,
      windowBytes = BODY_WINDOW_BYTES,
      bodySilenceMsMax = Number.POSITIVE_INFINITY,
    } = this.#options
    const isFull = this.#open.size >= callsMax
    const ended = (): void => this.#ended(call)
    const inbox = this.#inbox
    const args = { link, call, open, reply, inbox, windowBytes, bodySilenceMsMax, ended }
    const exchange = new BrokerExchange(args)
    this.#open.set(call, exchange)
    exchange.accept(frames.slice(1))
    this.#lookLater()
    if (isFull) {
      const message = `cannot take another request: ${callsMax} are open`
      const body = Buffer.from(JSON.stringify({ error: { message, type: 'server_error', code: null } }))
      exchange.writeHead(503, { 'content-type': 'application/json', 'content-length': String(body.length) })
      exchange.end(body)
      return
    }
    if (!callFor(`${this.#environment.subject}, call ${call}`, () => this.#onExchange(exchange)))
      exchange.destroy()
  }

  #refuse(link: BrokerLink, call: string, reply: string, reason: string): void {
    this.#environment.log.warn({ subject: this.#environment.subject, reason }, 'request refused')
    new FrameWriter(link, call, () => {}, reply).put(FRAME.failed, Buffer.from(reason))
  }

  #heard(bytes: Uint8Array): void {
    const payload = decodeCallPayload(bytes)
    if (payload === undefined || typeof payload === 'number') return
    this.#open.get(payload.call)?.heard(payload)
  }

  #ended(call: string): void {
    this.#open.delete(call)
    if (this.#open.size === 0) this.#onIdle?.()
  }

  #lookLater(): void {
    this.#timer ??= this.#environment.clock.after(BEAT_MS, () => {
      this.#timer = undefined
      for (const exchange of [...this.#open.values()]) exchange.look()
      if (this.#open.size > 0) this.#lookLater()
    })
  }
}

/** What a client says of its request. */
interface OpenWord {
  readonly method: string
  readonly path: string
  readonly headers: HttpHeaders
  readonly bodyBytes: number
  readonly windowBytes: number
}

function openOf(bytes: Uint8Array): OpenWord | undefined {
  const { method, path, headers, bodyBytes, windowBytes } = readJsonFrame(bytes) ?? {}
  if (typeof method !== 'string' || typeof path !== 'string' || !path.startsWith('/')) return undefined
  const read = headersOf(headers)
  if (read === undefined) return undefined
  if (!isCount(bodyBytes) || !isWindow(windowBytes)) return undefined
  return { method, path, headers: read, bodyBytes, windowBytes }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

interface BrokerExchangeArgs {
  readonly link: BrokerLink
  readonly call: string
  readonly open: OpenWord
  /** Where the answer goes. */
  readonly reply: string
  /** Where the client's next words come. */
  readonly inbox: string
  readonly windowBytes: number
  readonly bodySilenceMsMax: number
  readonly ended: () => void
}

class BrokerExchange implements ServedExchange {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers: HttpHeaders
  /** The broker is in between. */
  readonly peerAddress = ''
  readonly #args: BrokerExchangeArgs
  readonly #writer: FrameWriter
  readonly #answer: PieceSender
  #nextSequence = 1
  #body: RequestBody
  #isEnding: { readonly how: HttpEnd } | undefined
  #isClosed = false
  /** Its client left before the answer was complete. */
  #isGone = false
  readonly #onGone: ((reason: ClientGoneReason) => void)[] = []
  #onDrain: (() => void) | undefined
  readonly #onOver: (() => void)[] = []
  #silentLooks = 0

  constructor(args: BrokerExchangeArgs) {
    const { link, call, open, reply, inbox } = args
    const [path, query] = split(open.path)
    this.method = open.method
    this.path = path
    this.query = query
    this.headers = open.headers
    this.#args = args
    this.#writer = new FrameWriter(link, call, () => this.gone(), reply, inbox)
    this.#answer = new PieceSender(this.#writer, FRAME.data, link.payloadBytesMax)
    this.#body = new RequestBody(open.bodyBytes, args, bytes => this.#creditBody(bytes))
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** `first`: what of the body came along. */
  accept(first: readonly Frame[]): void {
    const { open, windowBytes } = this.#args
    this.#writer.put(FRAME.accept, jsonFrame({ windowBytes }))
    this.#answer.credit(open.windowBytes)
    for (const { bytes } of first) this.#body.put(bytes, false)
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
    if (fault !== undefined) this.#fail(fault)
    else if (!this.#writer.put(FRAME.head, jsonFrame({ status, headers })))
      this.#fail('the headers of the answer are larger than what the NATS broker takes')
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
    this.#fail(reason)
  }

  // ── What the server does ────────────────────────────────────────────────────────────────────

  heard({ sequence, frames }: CallPayload): void {
    if (this.#isClosed) return
    if (sequence !== this.#nextSequence) {
      this.#fail(`${sequence - this.#nextSequence} payloads of the request were lost`)
      return
    }
    this.#nextSequence++
    this.#silentLooks = 0
    for (const { kind, bytes } of frames) {
      if (this.#isClosed) return
      if (kind === FRAME.cancel) this.gone()
      else if (kind === FRAME.body) this.#body.put(bytes, true)
      else if (kind === FRAME.credit) {
        this.#answer.credit(readCountFrame(bytes) ?? 0)
        this.#drained()
      }
    }
  }

  look(): void {
    this.#body.look()
    if (++this.#silentLooks > SILENCE_LOOKS) this.gone()
    else this.#writer.put(FRAME.alive)
  }

  /** The client has left. */
  gone(): void {
    if (!this.#over()) return
    this.#isGone = true
    this.#body.fail(new ClientGoneError('read the body'))
    for (const callback of this.#onGone.splice(0)) callOwner(() => callback('left'))
  }

  #fail(reason: string): void {
    if (!this.#over()) return
    this.#writer.put(FRAME.failed, Buffer.from(reason.slice(0, REASON_CHARACTERS_MAX)))
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
    if (!this.#isClosed) this.#writer.put(FRAME.credit, countFrame(bytes))
  }

  #drained(): void {
    if (this.#isClosed || this.#answer.waitingBytes > 0) return
    if (this.#isEnding !== undefined) {
      this.#writer.put(FRAME.end, Uint8Array.of(this.#isEnding.how === 'closed' ? 1 : 0))
      this.#onGone.length = 0
      this.#over()
      return
    }
    const callback = this.#onDrain
    this.#onDrain = undefined
    if (callback !== undefined) callOwner(callback)
  }
}

/** The body of a request: what came is kept until somebody reads it, within the window; then all of it. */
class RequestBody {
  readonly #wholeBytes: number
  readonly #windowBytes: number
  readonly #silenceMsMax: number
  readonly #credit: (bytes: number) => void
  #pieces: Uint8Array[] = []
  #bytes = 0
  #taken = 0
  #error: Error | undefined
  /** Looks at a reader that waits, since the last piece. */
  #silentLooks = 0
  #reader:
    | {
        readonly resolve: (body: Uint8Array) => void
        readonly reject: (error: Error) => void
        room?: BodyRoom | undefined
      }
    | undefined

  constructor(
    wholeBytes: number,
    { windowBytes, bodySilenceMsMax }: { readonly windowBytes: number; readonly bodySilenceMsMax: number },
    credit: (bytes: number) => void,
  ) {
    this.#wholeBytes = wholeBytes
    this.#windowBytes = windowBytes
    this.#silenceMsMax = bodySilenceMsMax
    this.#credit = credit
  }

  /** `isCredited`: it came within the window, and not with the request. */
  put(bytes: Uint8Array, isCredited: boolean): void {
    if (this.#error !== undefined) return
    this.#silentLooks = 0
    this.#bytes += bytes.length
    const isTooMuch = this.#reader === undefined && isCredited && this.#bytes > this.#windowBytes
    if (this.#bytes > this.#wholeBytes || isTooMuch) {
      this.fail(new MalformedHttpError('its body is longer than its client said, or may send'))
      return
    }
    this.#pieces.push(bytes.slice())
    if (isCredited) this.#taken += bytes.length + PIECE_BYTES
    this.#roomFor(bytes.length)
    this.#goOn()
  }

  read(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      if (this.#wholeBytes > maxBytes) this.fail(new BodyTooLargeError(maxBytes))
      if (this.#error !== undefined) return reject(this.#error)
      this.#reader = { resolve, reject, room }
      this.#checkRoom()
      this.#roomFor(this.#bytes)
      this.#goOn()
    })
  }

  /** Every BEAT_MS: the first look may come at once, so one more is waited for. */
  look(): void {
    if (this.#reader !== undefined && ++this.#silentLooks * BEAT_MS > this.#silenceMsMax)
      this.fail(new BodyTimeoutError(this.#silenceMsMax, this.#bytes))
  }

  fail(error: Error): void {
    if (this.#error !== undefined) return
    this.#error = error
    this.#pieces = []
    this.#reader?.reject(error)
    this.#reader = undefined
  }

  #checkRoom(): void {
    try {
      this.#reader?.room?.check(this.#wholeBytes)
    } catch (error) {
      this.fail(error as Error)
    }
  }

  #roomFor(bytes: number): void {
    try {
      this.#reader?.room?.take(bytes)
    } catch (error) {
      this.fail(error as Error)
    }
  }

  #goOn(): void {
    const reader = this.#reader
    if (reader === undefined) return
    if (this.#bytes === this.#wholeBytes) {
      const pieces = this.#pieces
      this.#pieces = []
      this.#reader = undefined
      reader.resolve(pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces))
    } else if (this.#taken >= this.#windowBytes / 2) {
      this.#credit(this.#taken)
      this.#taken = 0
    }
  }
}

function split(target: string): readonly [string, string] {
  const at = target.indexOf('?')
  return at === -1 ? [target, ''] : [target.slice(0, at), target.slice(at + 1)]
}
