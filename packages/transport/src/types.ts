/**
 * Transport: the only door to sockets. HTTP both ways, and the four ZeroMQ roles that KV events need.
 *
 * Real sockets are behind `systemTransport`; `MemoryNetwork` implements the same interface without
 * any. An actor gets its thread's instance with `context.use(transportCapability)`.
 *
 * A callback that throws is a bug of its owner: the error is thrown again from a microtask, where it
 * stops the thread like any other; the transport goes on.
 */

import type { BrokerCounts } from './broker-counts.ts'
import type { HttpCallError, HttpRequestError } from './errors.ts'
import type { StreamStore } from './stream-store.ts'
import type { TcpCounts } from './tcp-counts.ts'
import type { TcpLimits } from './tcp-limits.ts'

export type HttpHeaders = Readonly<Record<string, string | readonly string[] | undefined>>

/** Decides whether bytes of a request body may be kept. */
export interface BodyRoom {
  /**
   * Throws when `byteCount` more bytes would find no room. Takes nothing: a length that is announced may
   * never come.
   */
  check(byteCount: number): void
  /** Takes room for bytes that have come; throws when there is none. The owner gives it back. */
  take(byteCount: number): void
  /**
   * Memory for a whole body of this length, for which room was taken; undefined: the transport finds some.
   * The owner of the room says when it belongs to others.
   */
  place?(byteCount: number): Uint8Array | undefined
}

/**
 * Why an exchange has no client any more. `stalled`: the client took no byte for `readerStallMsMax` and was
 * cut.
 */
export type ClientGoneReason = 'left' | 'stalled'

/** One HTTP exchange as the server sees it. */
export interface HttpExchange {
  readonly method: string
  /** Path without the query; of a target in absolute form (`http://host/path`) the path alone. */
  readonly path: string
  /** Text after '?', '' when there is none. */
  readonly query: string
  readonly headers: HttpHeaders
  /** The other end of the connection; '' where it is gone already. */
  readonly peerAddress: string
  /** True once the client has gone or the answer is complete. */
  readonly isClosed: boolean
  /**
   * The whole body. Rejects with BodyTooLargeError past `maxBytes`, with BodyTimeoutError when nothing of it
   * comes for the listener's `bodySilenceMsMax`, and with what `room` throws; the rest is then not read, and
   * the connection closed after the answer. The same with MalformedHttpError for a body that ends before its
   * length, or is no chunks. Rejects with ClientGoneError when the client leaves. Call at most once.
   */
  readBody(maxBytes: number, room?: BodyRoom): Promise<Uint8Array>
  /**
   * Called once when the client leaves, or is cut, before the answer is complete. A client that has only
   * closed its own side of the connection has not left.
   */
  onClientGone(callback: (reason: ClientGoneReason) => void): void
  /**
   * Called once when nothing of the answer waits in this process any more: all of it was handed to the
   * system, or the client has gone.
   */
  onOver(callback: () => void): void
  /** Sends status and headers. `content-length` is the caller's to give; otherwise the body is chunked. */
  writeHead(status: number, headers: HttpHeaders): void
  /**
   * Sends bytes. False: the client reads slowly; wait for `onDrain` before the next. The buffer must not be
   * changed afterwards.
   */
  write(bytes: Uint8Array): boolean
  /** Called once when more may be written; never after the client has gone. */
  onDrain(callback: () => void): void
  /** Completes the answer. */
  end(bytes?: Uint8Array): void
  /** Cuts the connection without completing the answer: the client sees an error, not a short answer. */
  destroy(): void
}

/**
 * `bound`: there are `connectionsMax`; `system`: the operating system has none left, for want of open files.
 */
export type ConnectionRefusal = 'bound' | 'system'

export interface ListenOptions {
  readonly host: string
  /** 0 picks a free one. */
  readonly port: number
  /** Longest wait for the next bytes of a request body, in milliseconds; default: no bound. */
  readonly bodySilenceMsMax?: number
  /**
   * Longest time that an answer may wait for a client that takes none of its bytes, in milliseconds; the
   * connection is cut then, up to a quarter later. Default: no bound.
   */
  readonly readerStallMsMax?: number
  /**
   * Longest time that a connection without a request is kept, in milliseconds; default 75 s, which is longer
   * than the 60 s after which load balancers commonly close theirs. If this end closes first, a request may
   * be on its way already. In memory it changes nothing.
   */
  readonly keepAliveMsMax?: number | undefined
  /**
   * What a client is told whose request is no HTTP that can be served; such a request is no exchange.
   * Default: the error's status and message, as text.
   */
  readonly errorAnswer?: (error: HttpRequestError) => HttpErrorAnswer
  /**
   * Others may listen at the same place if they say so, too, on other threads as well; each new connection
   * goes to one of them, in memory in turn. One that listens there without it is a ListenError. Not for
   * port 0. Default: false.
   */
  readonly isShared?: boolean
  /**
   * Most connections at one time; a further one is closed at once, and with it those that have no request
   * now, so that the next finds room. In memory it changes nothing. Default: no bound.
   */
  readonly connectionsMax?: number | undefined
  /** Called for a connection that was not taken. In memory there is none. */
  readonly onConnectionRefused?: ((why: ConnectionRefusal) => void) | undefined
  /** Speaks TLS with this certificate. In memory it changes nothing. Default: plain HTTP. */
  readonly tls?: TlsIdentity | undefined
}

/** A certificate (and what is needed to check it, behind it) with its private key, both in PEM. */
export interface TlsIdentity {
  readonly certificate: string
  readonly key: string
}

/** A whole answer; length and connection are added. */
export interface HttpErrorAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

export interface HttpListener {
  readonly host: string
  readonly port: number
  /** Connections that are open now; in memory, requests. */
  readonly connections: number
  /**
   * New connections and requests are served as before, but each answer that begins from now on ends its
   * connection: a client with another request connects anew, perhaps to another server.
   */
  endConnections(): void
  /**
   * Connections that begin from now on see this certificate; open ones go on with theirs. Only for a listener
   * that speaks TLS. In memory it changes nothing.
   */
  setIdentity(identity: TlsIdentity): void
  /** Stops accepting; resolves when open exchanges have ended or after `graceMs`, then cuts the rest. */
  close(graceMs: number): Promise<void>
}

export interface HttpRequest {
  /**
   * 'http://host:port' or 'https://host:port', and the path under which the server's routes are, if it has
   * one: 'http://host:port/engines/a'. Ways and keys belong to all of it.
   */
  readonly origin: string
  readonly method: string
  /** Path with query. */
  readonly path: string
  readonly headers?: HttpHeaders
  readonly body?: Uint8Array
}

/** How far a call got before it failed. */
export interface HttpFailure {
  /** False: the server cannot have seen the request. */
  readonly wroteRequest: boolean
  /**
   * The request was written to a connection that had served another before. When nothing was
   * answered, the server most likely closed it for idleness and never read the request.
   */
  readonly reusedConnection: boolean
}

/**
 * How an answer's end is known. `framed`: its length or its last chunk said so, or it can have no body.
 * `closed`: it had neither, and the server closed the connection in good order. HTTP takes that for the end;
 * a server that died looks the same.
 */
export type HttpEnd = 'framed' | 'closed'

/**
 * Called in order sent, head, data*, then exactly one of end and failed. Interim answers (1xx) are not told.
 */
export interface HttpResponseHandler {
  /** There is a connection, and the request is about to be written to it. */
  sent?(): void
  /** `isUnseen`: no byte of its body will be shown, though it has one; default false. */
  head(status: number, headers: HttpHeaders, isUnseen?: boolean): void
  data(bytes: Uint8Array): void
  end(how: HttpEnd): void
  /** Cannot connect, reset, bad answer, or aborted. */
  failed(error: HttpCallError, info: HttpFailure): void
}

export interface HttpCall {
  /** Closes the connection at once; `failed` follows unless the call has ended. */
  abort(): void
  /** Backpressure towards the server. */
  pause(): void
  resume(): void
  /** False: the call has ended, and the body of its request is not read any more. */
  readonly usesBody: boolean
}

export interface HttpReply {
  readonly status: number
  readonly headers: HttpHeaders
  readonly body: Uint8Array
}

/** What every request to an origin carries. It appears in no message and in no view. */
export interface HttpAccess {
  /**
   * Sent as `authorization: Bearer …`; undefined: none is sent. An `authorization` or `x-api-key` of the
   * request itself is never sent.
   */
  readonly key: string | undefined
}

/** What a host is recognized by, and what it is shown; all in PEM. */
export interface PeerTls {
  /** Believed for this host in place of all other authorities; undefined: those of all hosts. */
  readonly authorities?: string | undefined
  /** The name that its certificate must have; undefined: the host of the URL. */
  readonly serverName?: string | undefined
  /** Shown to it, with its private key; undefined: none is. */
  readonly identity?: TlsIdentity | undefined
}

/** A way over a broker, or over a connection of many calls. */
export interface HttpRoute {
  /** 'nats://host:port/subject' or 'tcp://host:port'. */
  readonly endpoint: string
  /** Of a 'tcp://' endpoint; default: those of `TCP_LIMITS`. */
  readonly tcp?: Partial<TcpLimits> | undefined
  /** Most bytes of an answer that may be on the way, or wait while its call is paused; 4096 … 2^30. */
  readonly windowBytes: number
}

export interface ServeOptions {
  /** 'nats://host:port/subject', or 'tcp://host:port' to listen there, port 0 at any free port. */
  readonly endpoint: string
  /** Of a 'tcp://' endpoint; default: those of `TCP_LIMITS`. */
  readonly tcp?: Partial<TcpLimits> | undefined
  /** Most open requests; further ones are answered with 503. Default 4096. */
  readonly callsMax?: number
  /**
   * Most bytes of a body that are on the way, or wait to be read; 4096 … 2^30, default 1 MiB. Over a broker a
   * client sends up to 256 KiB along with its request.
   */
  readonly windowBytes?: number
  /**
   * Longest wait for the next bytes of a body, in milliseconds; looked at once a second. Default: no bound.
   */
  readonly bodySilenceMsMax?: number
}

/** An exchange of the request plane. */
export interface ServedExchange extends HttpExchange {
  /** Completes the answer. `closed`: so far as the connection that it came over tells. */
  end(bytes?: Uint8Array, how?: HttpEnd): void
  /** Cuts the answer; the client is told the reason. */
  destroy(reason?: string): void
}

export interface ServingListener {
  /**
   * The endpoint at which requests are taken, with the real port. At a broker it is there at once, whether
   * the broker is or not. Rejects with ListenError.
   */
  readonly listening: Promise<string>
  /** Exchanges that are open. */
  readonly openCount: number
  /**
   * Takes no more requests; resolves when open exchanges have ended or after `graceMs`, then cuts the rest.
   */
  close(graceMs: number): Promise<void>
}

export interface HttpTransport {
  /** How requests to this origin are made from now on; undefined: as they are given. */
  setAccess(origin: string, access: HttpAccess | undefined): void
  /**
   * How connections of https to the host and port of this origin are made from now on; undefined: as to every
   * other. In memory it changes nothing.
   */
  setPeer(origin: string, tls: PeerTls | undefined): void
  /**
   * Certificates in PEM that are believed for https, besides those of Node and of the system. Only before the
   * first https call.
   */
  trust(certificates: string): void
  /**
   * Which way requests to this origin go from now on: over a broker, or over a connection of many calls;
   * undefined: over sockets of their own. Calls are the same any way. Throws EndpointError. A broker only on
   * the main thread.
   */
  setRoute(origin: string, route: HttpRoute | undefined): void
  /**
   * Takes requests that come over a broker, or over connections of many calls. A broker that is away is
   * waited for, and so is one that comes back. Throws EndpointError. A broker only on the main thread.
   */
  serve(options: ServeOptions, onExchange: (exchange: ServedExchange) => void): ServingListener
  /** Rejects with ListenError (port taken, no permission, …). */
  listen(options: ListenOptions, onExchange: (exchange: HttpExchange) => void): Promise<HttpListener>
  /** Streams an answer to `handler`. No time limit of its own. */
  call(request: HttpRequest, handler: HttpResponseHandler): HttpCall
  /**
   * One small answer, whole. Rejects with HttpCallError; after `timeoutMs`; past `maxBytes` (default 16 MiB).
   */
  fetch(
    request: HttpRequest,
    options: { readonly timeoutMs: number; readonly maxBytes?: number; readonly signal?: AbortSignal },
  ): Promise<HttpReply>
}

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

export type Frames = readonly Uint8Array[]

export interface SubscriberHandler {
  /** `number`: for `Subscription.done`; undefined or 0: nothing waits for that. */
  message(frames: Frames, number?: number): void
  /**
   * The connection is up (again): a publisher may be a new process. `path`: undefined is 'publisher'.
   * `life`: of a publisher at a broker, 16 hexadecimal digits, others in each life of it.
   */
  connected(path?: EventPath, life?: string): void
  disconnected(): void
}

/** How messages come: from their publisher, or from the stream that keeps them at the broker. */
export type EventPath = 'publisher' | 'stream'

/** Which stream, and how it is made if it is not there. One that is there keeps its limits. */
export interface StreamOptions {
  /** 1 to 64 letters, digits, '-' and '_': fleets with different ones do not see each other. */
  readonly namespace: string
  /** How long it keeps a message, in milliseconds. */
  readonly retentionMs: number
  /** Most bytes that it keeps; the oldest messages go first. */
  readonly bytesMax: number
}

export interface Subscription extends Closable {
  /**
   * The message with this number, and all before it, are dealt with: the broker need not keep them for us.
   */
  done?(number: number): void
}

export interface SubscribeOptions {
  readonly endpoint: string
  readonly topic: string
  /** Follow the stream of this namespace, as long as the publisher says that it has all. */
  readonly stream?: StreamOptions | undefined
}

export interface DialOptions {
  readonly endpoint: string
  /** Take from the stream of this namespace what the publisher of a replay has forgotten. */
  readonly stream?: StreamOptions | undefined
}

export interface Closable {
  close(): void
}

export interface Dealer extends Closable {
  /** Queues while there is no connection. False: closed, or too much is queued; the message is dropped. */
  send(frames: Frames): boolean
  /** Messages that are dealt with since the last call: a stream is read no faster. */
  took?(count: number): void
}

export interface Publisher extends Closable {
  /** The bound endpoint, with the real port when it was bound to 0: 'tcp://127.0.0.1:5557'. */
  readonly endpoint: string
  /**
   * Queues; never waits. Messages of one publisher keep their order. A subscriber that reads too slowly
   * loses messages, as with any PUB; frames must not be changed afterwards.
   */
  send(frames: Frames): void
  /** Messages lost so, summed over subscribers. */
  readonly droppedCount: number
}

export interface RouterSocket extends Closable {
  readonly endpoint: string
  /** False: that peer is not connected, or reads too slowly; the message is dropped. */
  send(identity: Uint8Array, frames: Frames): boolean
  /**
   * The same, and tells what became of it: so a sender that waits at 'full' has no more than
   * `queuedMessagesMax` messages in the socket for a peer that does not read.
   */
  offer(identity: Uint8Array, frames: Frames): Offered | Promise<Offered>
}

/** 'full': as many messages as may wait for that peer do, and this one is not among them. */
export type Offered = 'taken' | 'full' | 'gone'

/** A role that binds. */
export interface BindOptions {
  readonly endpoint: string
  /**
   * Messages held per peer that reads too slowly, 1 … 100,000, which is the default; further ones to it are
   * lost. In memory there is no bound.
   */
  readonly queuedMessagesMax?: number
  /** Of a publisher at a broker: publish into the stream of this namespace, too. */
  readonly stream?: StreamOptions | undefined
}

/**
 * ZeroMQ roles. Endpoints are 'tcp://host:port' and 'ipc://path'; to bind, the host may be '*' and the
 * port 0. Frames that are received belong to the receiver. Nothing is called after `close`. An endpoint that
 * cannot be read throws EndpointError, one that cannot be bound rejects with ListenError.
 */
export interface MessageTransport {
  /** SUB that connects; topics are byte prefixes, '' is all. Reconnects by itself (100 ms … 5 s). */
  subscribe(options: SubscribeOptions, handler: SubscriberHandler): Subscription
  /** PUB that binds. */
  publish(options: BindOptions): Promise<Publisher>
  /** DEALER that connects. */
  dial(options: DialOptions, onMessage: (frames: Frames) => void): Dealer
  /**
   * Announces this peer under a subject of a broker and reports other peers. Endpoints of sockets throw
   * EndpointError. On the main thread only.
   */
  present(options: PresenceOptions, handler: PresenceHandler): OwnPresence
  /** ROUTER that binds; `frames` are those after the identity. */
  serve(
    options: BindOptions,
    onMessage: (identity: Uint8Array, frames: Frames) => void,
  ): Promise<RouterSocket>
}

/** The roles that ZeroMQ sockets have. */
export type SocketRoles = Omit<MessageTransport, 'present'>

export interface PresenceOptions {
  /** 'nats://host:port/subject' or 'etcd://host:port/subject'; see presenceEndpoint. */
  readonly endpoint: string
  /** Sent to other peers with each beat, so it should be short; undefined: this peer only listens. */
  readonly card: Uint8Array | undefined
}

/** The announced presence of this peer. Closing it says good-bye to others. */
export interface OwnPresence extends Closable {
  /** Ends without good-bye, for a peer that is back at once: others notice only its silence. Idempotent. */
  leave(): void
  /** Resolves when the good-bye has been said, or cannot be; undefined: it is said at once. */
  readonly closed?: Promise<void> | undefined
}

/** A peer that is there. */
export interface PresentOne {
  /** 16 hexadecimal digits, others in each life. */
  readonly life: string
  readonly card: Uint8Array
}

/** Why a peer is gone: it said good-bye, it was silent too long, or the broker cannot be reached. */
export type AbsenceReason = 'bye' | 'silence' | 'no broker'

export interface PresenceHandler {
  /** A peer came, or changed its card. */
  present(one: PresentOne): void
  gone(life: string, reason: AbsenceReason): void
  /** A connection to the broker was made, the first or a new one: all peers will be reported. */
  connected?(): void
}

/** An address of a name. */
export interface NameAddress {
  /** IPv4, or IPv6 without brackets. */
  readonly address: string
  /** How long the answer may be kept, in seconds. */
  readonly ttlSeconds: number
}

/** A target of a service (SRV). */
export interface NameTarget {
  readonly name: string
  readonly port: number
}

/** Asks DNS servers. Both reject with NameError. */
export interface NameResolver extends Closable {
  /** The IPv4 addresses of a name; if it has none, its IPv6 addresses. */
  addresses(name: string): Promise<readonly NameAddress[]>
  /** The targets of SRV records, those of the lowest priority number alone. */
  targets(name: string): Promise<readonly NameTarget[]>
}

export interface Transport {
  readonly http: HttpTransport
  /**
   * Takes the requests about which an Envoy asks (ext_proc over gRPC). Rejects with ListenError, and with
   * NotInstalledError. Undefined: this transport takes none.
   */
  extProc?(options: ExtProcOptions, onExchange: (exchange: PickedExchange) => void): Promise<ExtProcListener>
  readonly messages: MessageTransport
  /**
   * Of these DNS servers, 'address' or 'address:port' each; none: those of the system. Undefined: this
   * transport knows no names.
   */
  nameResolver?(servers: readonly string[]): NameResolver
  /**
   * What is kept beside the stream of a namespace at a broker, 'host:port' each. On the main thread only; not
   * closed with the transport. `etcdServers`: the lock is there, 'http://host:port' each; default: at the
   * broker. Undefined: brokers of this transport keep nothing.
   */
  streamStore?(
    servers: readonly string[],
    stream: StreamOptions,
    etcdServers?: readonly string[],
  ): StreamStore
  /**
   * Resolves when the good-byes of closed presences are said, or a second is over: `close` cuts them off.
   * Undefined: all are said at once.
   */
  goodByesSaid?(): Promise<void>
  /** Counts of each broker for this thread, by its addresses ('host:port,…'). */
  brokers(): readonly (readonly [string, Readonly<BrokerCounts>])[]
  /** Counts of the TCP request plane for this instance. */
  readonly tcp: Readonly<TcpCounts>
  /** Closes all that was opened through this instance, at once; idempotent. */
  close(): void
}
