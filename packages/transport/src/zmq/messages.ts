/** The four ZeroMQ roles on the zeromq package, for the main thread (see library.ts). */

import type * as zeromq from 'zeromq'
import { callFor, faulted } from '../callback.ts'
import type { Closable } from '../closable.ts'
import { parseSocketEndpoint } from '../endpoint.ts'
import { ListenError } from '../errors.ts'
import type {
  BindOptions,
  Dealer,
  DialOptions,
  Frames,
  Publisher,
  RouterSocket,
  SocketRoles,
} from '../message-types.ts'
import { ZmqConnector } from './connector.ts'
import {
  bindSocket,
  closeBound,
  fatal,
  nextTurn,
  openSocket,
  QUEUED_MESSAGES_MAX,
  readMessages,
  SEND_BUFFER_BYTES,
  SILENT_PEER_MS_MAX,
  type ZmqEnvironment,
} from './library.ts'
import { PeerNames } from './peer-names.ts'

/** Messages that wait in a DEALER for its first or next connection. */
export const DEALER_QUEUE_MAX = 1000
/** After a publisher is closed, its last messages still go out for this time. */
const LAST_WORD_MS_MAX = 200
/** Turns of the event loop in which a message is offered to a peer that is full. */
const OFFER_ATTEMPTS_MAX = 5

/** What a host needs beside the roles. */
export interface ZmqMessages extends SocketRoles, Closable {
  /** `taken` is called per message that was handed to libzmq and waits here no longer. */
  dial(options: DialOptions, onMessage: (frames: Frames) => void, taken?: () => void): Dealer
  /** `gone` is called when a message was for a peer that is not there any more. */
  serve(
    options: BindOptions,
    onMessage: (identity: Uint8Array, frames: Frames) => void,
    gone?: (identity: Uint8Array) => void,
  ): Promise<RouterSocket>
}

/** The roles, and one `close` for all that was opened. */
export function zmqMessages(environment: ZmqEnvironment): ZmqMessages {
  const open = new Set<Closable>()
  let isClosed = false
  const owned = <T extends Closable>(socket: T): T => {
    if (isClosed) socket.close()
    else open.add(socket)
    return socket
  }
  const released = (socket: Closable): void => void open.delete(socket)

  return {
    subscribe({ endpoint, topic }, handler) {
      const connector = new ZmqConnector(
        endpoint,
        (library, options) => {
          const socket = new library.Subscriber({ ...options, receiveHighWaterMark: QUEUED_MESSAGES_MAX })
          socket.subscribe(topic)
          return socket
        },
        handler,
        environment,
      )
      const subscriber: Closable = {
        close() {
          released(subscriber)
          connector.close()
        },
      }
      return owned(subscriber)
    },
    publish: async options => owned(await publish(options, environment, released)),
    dial: ({ endpoint }, onMessage, taken = () => {}) =>
      owned(dial(endpoint, onMessage, taken, environment, released)),
    serve: async (options, onMessage, gone = () => {}) =>
      owned(await serve(options, onMessage, gone, environment, released)),
    close() {
      isClosed = true
      for (const socket of [...open]) socket.close()
    },
  }
}

type Released = (socket: Closable) => void

/** Opens and binds; a socket that cannot be bound is closed. */
async function bound<S extends zeromq.Publisher | zeromq.Router>(
  text: string,
  create: Parameters<typeof openSocket<S>>[1],
  { clock, log }: ZmqEnvironment,
): Promise<{ readonly socket: S; readonly endpoint: string }> {
  parseSocketEndpoint(text, 'bind')
  const onEvent = (event: zeromq.Event): void => {
    if (!('error' in event) || !event.type.startsWith('handshake:error')) return
    log.warn({ endpoint: text, reason: event.error.message }, 'ZeroMQ connection failed')
  }
  let socket: S
  try {
    socket = openSocket(text, create, onEvent)
  } catch (error) {
    throw new ListenError(text, error)
  }
  try {
    return { socket, endpoint: await bindSocket(socket, text, clock) }
  } catch (error) {
    closeBound(socket)
    throw error
  }
}

/**
 * libzmq does not tell how many messages a slow subscriber lost past `queuedMessagesMax`, so they are not
 * counted.
 */
async function publish(
  { endpoint: text, queuedMessagesMax = QUEUED_MESSAGES_MAX }: BindOptions,
  environment: ZmqEnvironment,
  released: Released,
): Promise<Publisher> {
  const { socket, endpoint } = await bound(
    text,
    (library, options) =>
      new library.Publisher({
        ...options,
        tcpMaxRetransmitTimeout: SILENT_PEER_MS_MAX,
        sendBufferSize: SEND_BUFFER_BYTES,
        sendHighWaterMark: queuedMessagesMax,
        sendTimeout: 0,
        linger: LAST_WORD_MS_MAX,
      }),
    environment,
  )
  let isClosed = false
  const publisher: Publisher = {
    endpoint,
    droppedCount: 0,
    send(frames) {
      if (isClosed || frames.length === 0) return
      // With a send timeout of 0 the message is libzmq's when the call returns.
      socket.send(frames as Uint8Array[]).catch((error: unknown) => {
        if (!isClosed) faulted(endpoint, error)
      })
    },
    close() {
      isClosed = true
      released(publisher)
      closeBound(socket)
    },
  }
  return publisher
}

function dial(
  endpoint: string,
  onMessage: (frames: Frames) => void,
  taken: () => void,
  environment: ZmqEnvironment,
  released: Released,
): Dealer {
  let queue: Frames[] = []
  let isSending = false
  let isClosed = false
  const sendAll = async (): Promise<void> => {
    if (isSending) return
    isSending = true
    for (let socket = connector.socket; socket !== undefined && queue.length > 0; socket = connector.socket) {
      try {
        await socket.send(queue[0] as Uint8Array[])
      } catch (error) {
        // A send that waited for room ends with its connection; the message goes to the next one.
        if (socket.closed) continue
        faulted(endpoint, error)
      }
      if (isClosed) return
      queue.shift()
      taken()
    }
    isSending = false
  }
  const connector = new ZmqConnector<zeromq.Dealer>(
    endpoint,
    (library, options) => new library.Dealer({ ...options, receiveHighWaterMark: QUEUED_MESSAGES_MAX }),
    {
      connected: () => void sendAll().catch(fatal),
      message: onMessage,
      disconnected() {},
    },
    environment,
  )
  const dealer: Dealer = {
    send(frames) {
      if (isClosed || frames.length === 0 || queue.length >= DEALER_QUEUE_MAX) return false
      queue.push(frames)
      sendAll().catch(fatal)
      return true
    },
    close() {
      isClosed = true
      queue = []
      released(dealer)
      connector.close()
    },
  }
  return dealer
}

async function serve(
  { endpoint: text, queuedMessagesMax = QUEUED_MESSAGES_MAX }: BindOptions,
  onMessage: (identity: Uint8Array, frames: Frames) => void,
  gone: (identity: Uint8Array) => void,
  environment: ZmqEnvironment,
  released: Released,
): Promise<RouterSocket> {
  const { socket, endpoint } = await bound(
    text,
    (library, options) =>
      new library.Router({
        ...options,
        tcpMaxRetransmitTimeout: SILENT_PEER_MS_MAX,
        sendBufferSize: SEND_BUFFER_BYTES,
        sendHighWaterMark: queuedMessagesMax,
        mandatory: true,
        sendTimeout: 0,
      }),
    environment,
  )
  const peers = new PeerNames()
  let isClosed = false
  const refused = (identity: Uint8Array, error: unknown): void => {
    if (isClosed) return
    const { code } = error as { readonly code?: unknown }
    if (code === 'EHOSTUNREACH') {
      peers.delete(identity)
      gone(identity)
    } else faulted(`${endpoint}, peer ${Buffer.from(identity).toString('hex')}`, error)
  }
  readMessages(socket, environment.gate, ([identity, ...frames]) => {
    if (isClosed) return false
    peers.add(identity!)
    callFor(`${endpoint}, peer ${Buffer.from(identity!).toString('hex')}`, onMessage, identity!, frames)
    return true
  }).catch(fatal)
  const router: RouterSocket = {
    endpoint,
    send(identity, frames) {
      if (isClosed || frames.length === 0 || !peers.has(identity)) return false
      socket.send([identity, ...frames]).catch((error: unknown) => {
        if (isFull(error))
          environment.log.warn({ endpoint, queuedMessagesMax }, 'ZeroMQ peer reads too slowly')
        else refused(identity, error)
      })
      return true
    },
    async offer(identity, frames) {
      if (isClosed || frames.length === 0 || !peers.has(identity)) return 'gone'
      for (let attempt = 1; ; attempt++) {
        try {
          await socket.send([identity, ...frames])
          return 'taken'
        } catch (error) {
          if (!isFull(error)) {
            refused(identity, error)
            return 'gone'
          }
        }
        if (attempt === OFFER_ATTEMPTS_MAX) return 'full'
        // A peer that reads has room within microseconds; asking makes libzmq notice it.
        await nextTurn()
        if (isClosed) return 'gone'
        void socket.writable
      }
    },
    close() {
      isClosed = true
      released(router)
      closeBound(socket)
    },
  }
  return router
}

/** As many messages as may wait for that peer do. */
function isFull(error: unknown): boolean {
  return (error as { readonly code?: unknown }).code === 'EAGAIN'
}
