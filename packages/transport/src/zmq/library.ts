/**
 * The zeromq package as the roles use it: loaded on first use, one context, one place that opens and closes.
 *
 * Only for the main thread. If a thread ends while the library waits for a message on it, the library throws
 * in native code and the whole process aborts. The main thread ends with the process, so it has no such end.
 *
 * Protocol
 *   A closed socket is gone only when its monitor has reported 'end': until then libzmq's own threads hold
 *   its port and may even accept a connection. Every bind or connect waits for the bound sockets that were
 *   closed before.
 */

import { closeSync, openSync } from 'node:fs'
import { createRequire } from 'node:module'
import { devNull } from 'node:os'
import { isMainThread } from 'node:worker_threads'
import type { Clock } from '@homing/base'
import type * as zeromq from 'zeromq'
import { formatEndpoint, parseSocketEndpoint } from '../endpoint.ts'
import { ListenError } from '../errors.ts'

/** What the roles need of their thread; its log will do. */
export interface ZmqEnvironment {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  /**
   * Reading waits for what this answers, so that a reader that falls behind is not buried. Undefined: read
   * on.
   */
  readonly gate?: () => Promise<void> | undefined
}

export type Socket = zeromq.Subscriber | zeromq.Publisher | zeromq.Dealer | zeromq.Router

/** Messages that libzmq holds per peer and direction, as many as vLLM's own publisher holds. */
export const QUEUED_MESSAGES_MAX = 100_000

/** A larger frame ends its connection. Engines send a few megabytes at most. */
const FRAME_BYTES_MAX = 256 * 2 ** 20

/** Each role takes three sockets of libzmq: itself and both ends of its monitor. */
const SOCKETS_MAX = 16_384

/** How long is waited for sockets that are on their way out. */
const SOCKET_CLOSE_MS_MAX = 1000

/** A dead host is noticed by the kernel's probes within 75 s: silence is normal between engines and us. */
const COMMON_OPTIONS = {
  linger: 0,
  maxMessageSize: FRAME_BYTES_MAX,
  tcpKeepalive: 1,
  tcpKeepaliveIdle: 15,
  tcpKeepaliveInterval: 15,
  tcpKeepaliveCount: 4,
  handshakeInterval: 10_000,
} as const

/**
 * A peer that reads nothing for this long while bytes wait for it is disconnected by the kernel
 * (TCP_USER_TIMEOUT), and what libzmq holds for it is freed. It may connect again.
 */
export const SILENT_PEER_MS_MAX = 10_000

/** Bytes that the kernel holds for a peer of a bound socket (SO_SNDBUF); by itself it would go up to 4 MB. */
export const SEND_BUFFER_BYTES = 256 * 2 ** 10

export type CommonOptions = typeof COMMON_OPTIONS & {
  readonly context: zeromq.Context
  readonly ipv6: boolean
}

type Library = typeof zeromq

let loaded: { readonly library: Library; readonly context: zeromq.Context } | undefined
/**
 * File descriptors that must be free before a socket is made or bound. A socket takes one for itself and each
 * end of its monitor; a monitor that got only some of its descriptors is never closed. A bind lists the
 * network interfaces, and libzmq aborts the process if it cannot. The rest is for files that libzmq's threads
 * open meanwhile.
 */
const FREE_FILES = 10

/** Sockets with a port that were closed and are not gone. */
const closing = new Set<Promise<void>>()
let openCount = 0

/** How many sockets exist in this process, those on their way out included; for tests. */
export function zmqSocketCount(): number {
  return openCount
}

/**
 * Makes a socket for an endpoint and tells its monitor's events until it is gone. An address with ':' is
 * IPv6; names are looked up as IPv4, as libzmq does unless told otherwise. Throws EMFILE or ENFILE when file
 * descriptors are about to run out.
 */
export function openSocket<S extends Socket>(
  endpoint: string,
  create: (library: Library, options: CommonOptions) => S,
  onEvent: (event: zeromq.Event) => void,
): S {
  if (!isMainThread) throw new Error('ZeroMQ sockets are opened on the main thread only')
  if (loaded === undefined) {
    const library = createRequire(import.meta.url)('zeromq') as Library
    loaded = { library, context: new library.Context({ blocky: false, maxSockets: SOCKETS_MAX }) }
  }
  const { library, context } = loaded
  const ipv6 = endpoint.includes('[')
  assureFreeFiles()
  const socket = create(library, { ...COMMON_OPTIONS, context, ipv6 })
  const gone = watch(socket.events, onEvent).finally(() => {
    openCount--
    closing.delete(gone)
    goneBySocket.delete(socket)
  })
  openCount++
  goneBySocket.set(socket, gone)
  return socket
}

const goneBySocket = new Map<Socket, Promise<void>>()

/** Closes a socket that binds; idempotent. */
export function closeBound(socket: zeromq.Publisher | zeromq.Router): void {
  const gone = goneBySocket.get(socket)
  if (gone !== undefined) closing.add(gone)
  socket.close()
}

/** Undefined when no bound socket is on its way out. */
export function closedAreGone(clock: Clock): Promise<void> | undefined {
  if (closing.size === 0) return undefined
  return new Promise(resolve => {
    const timer = clock.after(SOCKET_CLOSE_MS_MAX, resolve)
    void Promise.all(closing).then(() => {
      timer.cancel()
      resolve()
    })
  })
}

/** Answers the endpoint with its real port. Throws EndpointError; rejects with ListenError. */
export async function bindSocket(
  socket: zeromq.Publisher | zeromq.Router,
  endpoint: string,
  clock: Clock,
): Promise<string> {
  const parsed = parseSocketEndpoint(endpoint, 'bind')
  await closedAreGone(clock)
  try {
    assureFreeFiles()
    await socket.bind(formatEndpoint(parsed))
  } catch (error) {
    throw new ListenError(endpoint, error)
  }
  if (parsed.scheme === 'ipc' || parsed.port !== 0) return formatEndpoint(parsed)
  return formatEndpoint({ ...parsed, port: Number(/\d+$/.exec(socket.lastEndpoint ?? '')?.[0]) })
}

/** Throws EMFILE or ENFILE unless this process may open FREE_FILES more. */
function assureFreeFiles(): void {
  const files: number[] = []
  try {
    while (files.length < FREE_FILES) files.push(openSync(devNull, 'r'))
  } catch (error) {
    // Its text names the file that is opened here, which is beside the point.
    const { code, message } = error as NodeJS.ErrnoException
    throw Object.assign(new Error(message.replace(/, open .*/, ''), { cause: error }), { code })
  } finally {
    for (const file of files) closeSync(file)
  }
}

/** Resolves when the socket is gone. */
async function watch(observer: zeromq.Observer, onEvent: (event: zeromq.Event) => void): Promise<void> {
  while (!observer.closed) {
    const event = await observer.receive()
    onEvent(event)
    if (event.type === 'end') return
  }
}

/** A turn of the event loop: what has arrived meanwhile is told first. */
export function nextTurn(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}

/** Messages of one socket before others have their turn: about a millisecond. */
const BURST_MESSAGES_MAX = 128

/**
 * Tells the messages of a socket until it is closed or `onMessage` answers false; the library's errors while
 * the socket is closed are the end, others reject.
 */
export async function readMessages(
  socket: zeromq.Subscriber | zeromq.Dealer | zeromq.Router,
  gate: ZmqEnvironment['gate'],
  onMessage: (frames: Uint8Array[]) => boolean | Promise<boolean>,
): Promise<void> {
  let burst = 0
  for (;;) {
    let frames: Uint8Array[]
    try {
      frames = await socket.receive()
    } catch (error) {
      if (socket.closed) return
      throw error
    }
    const goesOn = onMessage(frames)
    if (goesOn !== true && !(await goesOn)) return
    const opened = gate?.()
    if (opened !== undefined) await opened
    if (++burst === BURST_MESSAGES_MAX) {
      burst = 0
      await nextTurn()
    }
  }
}

/** An error that no caller waits for is a bug or the end of the machine: it stops the thread as any other. */
export function fatal(error: unknown): void {
  queueMicrotask(() => {
    throw error
  })
}
