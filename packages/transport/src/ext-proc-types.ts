/** Ext-proc types: requests about which an Envoy asks, and the listener that takes them. */

import type {
  HttpCall,
  HttpExchange,
  HttpHeaders,
  HttpRequest,
  HttpResponseHandler,
  TlsIdentity,
} from './http-types.ts'

export interface ExtProcOptions {
  readonly host: string
  /** 0 picks a free one. */
  readonly port: number
  /** Others may listen at the same place if they say so, too; default false. */
  readonly isShared?: boolean
  /** For clients that can check none: a certificate of its own is made. 'off': plain HTTP/2. */
  readonly tls: TlsIdentity | 'self-signed' | 'off'
  /** Plain gRPC with the health service alone; undefined: it is beside the streams only. */
  readonly healthPort?: number | undefined
  /** Most streams at one time; a further one is answered with RESOURCE_EXHAUSTED. */
  readonly streamsMax: number
  readonly connectionsMax: number
  /** A buffered body comes as one frame, which has a little more. */
  readonly bodyBytesMax: number
  /** Longest wait for the next bytes of a request body, in milliseconds. */
  readonly bodySilenceMsMax: number
}

/** Sums since the start, but for `streams`. */
export interface ExtProcCounts {
  /** Open now. */
  streams: number
  /** Streams whose answer was followed to its end. */
  ended: number
  /** Streams that Envoy ended before the end of an answer: the client has left, or it shows no answers. */
  left: number
  /** Answered at once, instead of being sent anywhere. */
  refused: number
  /** Answered by another endpoint than the first of the list. */
  moved: number
  /** Streams with frames that cannot be used. */
  malformed: number
  /** Streams and connections that found no room. */
  full: number
}

export interface ExtProcListener {
  readonly host: string
  readonly port: number
  readonly healthPort: number | undefined
  readonly counts: Readonly<ExtProcCounts>
  /** What the health service says of readiness; false at first. */
  setServing(isServing: boolean): void
  /** Connections that begin from now on see this certificate. */
  setIdentity(identity: TlsIdentity): void
  /** Takes no new streams; resolves when open ones have ended or after `graceMs`, then cuts the rest. */
  close(graceMs: number): Promise<void>
}

/**
 * A request that Envoy asks about. It is an exchange like any other, and brings its own way to the workers:
 * `call` tells Envoy where the request is to go. The handler hears of the answer as Envoy gets it.
 *
 * After a call the client has the worker's own answer: what its owner writes then is dropped. Before a call,
 * what its owner writes is the client's answer, once it has ended.
 */
export interface PickedExchange extends HttpExchange {
  /** Endpoints of which one is to be chosen: 'ip:port', or 'ip' for all its ports; undefined: any. */
  readonly subset: readonly string[] | undefined
  /** Envoy sends its body before the choice, even if that is empty, and waits until it is taken. */
  readonly isBodySent: boolean
  /** Whether the endpoint of this origin is one of these; an origin whose address is not known is none. */
  isAmong(origin: string, endpoints: readonly string[]): boolean | Promise<boolean>
  /**
   * `others`: origins that may take it instead if the first cannot be reached. If another one has answered,
   * `failed` says so (`connect`, with `servedBy`); a second call to that origin gets its answer. Any other
   * second call fails.
   */
  call(request: PickedRequest, handler: HttpResponseHandler): HttpCall
}

export interface PickedRequest extends HttpRequest {
  readonly others: readonly string[]
  /** Set on the answer that the client gets. */
  readonly answerHeaders: HttpHeaders
  /** Header of the answer that is to say which endpoint has answered; undefined: none. */
  readonly servedHeader?: string
}
