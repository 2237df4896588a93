/**
 * Transport: the only door to sockets. HTTP both ways, and the four ZeroMQ roles that KV events need.
 *
 * Real sockets are behind `systemTransport`; a simulated network implements the same interface.
 * An actor gets its thread's instance with `context.use(transportCapability)`.
 */

export type HttpHeaders = Readonly<Record<string, string | readonly string[] | undefined>>

/** One HTTP exchange as the server sees it. */
export interface HttpExchange {
  readonly method: string
  /** Path without the query. */
  readonly path: string
  /** Text after '?', '' when there is none. */
  readonly query: string
  readonly headers: HttpHeaders
  /** True once the client has gone or the answer is complete. */
  readonly isClosed: boolean
  /**
   * The whole body. Rejects with BodyTooLargeError past `maxBytes` (the rest is not read) and with
   * ClientGoneError when the client leaves. Call at most once.
   */
  readBody(maxBytes: number): Promise<Uint8Array>
  /** Called once when the client leaves before the answer is complete. */
  onClientGone(callback: () => void): void
  /** Sends status and headers. `content-length` is the caller's to give; otherwise the body is chunked. */
  writeHead(status: number, headers: HttpHeaders): void
  /** Sends bytes. False: the client reads slowly; wait for `onDrain` before the next. The buffer must not be changed afterwards. */
  write(bytes: Uint8Array): boolean
  onDrain(callback: () => void): void
  /** Completes the answer. */
  end(bytes?: Uint8Array): void
  /** Cuts the connection without completing the answer: the client sees an error, not a short answer. */
  destroy(): void
}

export interface HttpListener {
  readonly host: string
  readonly port: number
  /** Stops accepting; resolves when open exchanges have ended or after `graceMs`, then cuts the rest. */
  close(graceMs: number): Promise<void>
}

export interface HttpRequest {
  /** 'http://host:port'. */
  readonly origin: string
  readonly method: string
  /** Path with query. */
  readonly path: string
  readonly headers?: HttpHeaders
  readonly body?: Uint8Array
}

/** Called in order head, data*, then exactly one of end and failed. */
export interface HttpResponseHandler {
  head(status: number, headers: HttpHeaders): void
  data(bytes: Uint8Array): void
  end(): void
  /** Cannot connect, reset, bad answer, or aborted. `wroteRequest` false: the server cannot have seen the request. */
  failed(error: Error, info: { readonly wroteRequest: boolean }): void
}

export interface HttpCall {
  /** Closes the connection at once; `failed` follows unless the call has ended. */
  abort(): void
  /** Backpressure towards the server. */
  pause(): void
  resume(): void
}

export interface HttpReply {
  readonly status: number
  readonly headers: HttpHeaders
  readonly body: Uint8Array
}

export interface HttpTransport {
  /** Port 0 picks a free one. Rejects with ListenError (port taken, no permission, …). */
  listen(
    options: { readonly host: string; readonly port: number },
    onExchange: (exchange: HttpExchange) => void,
  ): Promise<HttpListener>
  /** Streams an answer to `handler`. No time limit of its own. */
  call(request: HttpRequest, handler: HttpResponseHandler): HttpCall
  /** One small answer, whole. Rejects with HttpCallError; after `timeoutMs`; past `maxBytes` (default 16 MiB). */
  fetch(
    request: HttpRequest,
    options: { readonly timeoutMs: number; readonly maxBytes?: number; readonly signal?: AbortSignal },
  ): Promise<HttpReply>
}

export type Frames = readonly Uint8Array[]

export interface SubscriberHandler {
  message(frames: Frames): void
  /** The connection is up (again): a publisher may be a new process. */
  connected(): void
  disconnected(): void
}

export interface Closable {
  close(): void
}

export interface Dealer extends Closable {
  send(frames: Frames): void
}

export interface Publisher extends Closable {
  /** The bound endpoint, with the real port when it was bound to 0: 'tcp://127.0.0.1:5557'. */
  readonly endpoint: string
  /** Queues; never waits. Messages of one publisher keep their order. */
  send(frames: Frames): void
}

export interface Router extends Closable {
  readonly endpoint: string
  send(identity: Uint8Array, frames: Frames): void
}

/** ZeroMQ roles. Frames that are received belong to the receiver. */
export interface MessageTransport {
  /** SUB that connects; topics are byte prefixes, '' is all. Reconnects by itself (100 ms … 5 s). */
  subscribe(options: { readonly endpoint: string; readonly topic: string }, handler: SubscriberHandler): Closable
  /** PUB that binds. */
  publish(options: { readonly endpoint: string }): Promise<Publisher>
  /** DEALER that connects. */
  dial(options: { readonly endpoint: string }, onMessage: (frames: Frames) => void): Dealer
  /** ROUTER that binds; `frames` are those after the identity. */
  serve(
    options: { readonly endpoint: string },
    onMessage: (identity: Uint8Array, frames: Frames) => void,
  ): Promise<Router>
}

export interface Transport {
  readonly http: HttpTransport
  readonly messages: MessageTransport
}
