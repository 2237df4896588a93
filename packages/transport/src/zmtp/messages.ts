/**
 * The four ZeroMQ roles on our own ZMTP connections.
 *
 * Why not the library: its receive is a promise held by native code, and Node ends a worker thread
 * without settling such promises: the library then throws in C++ and the whole process
 * aborts. Here every thread may end at any time. Tests talk to the library (libzmq) in all roles.
 */

import { callOwner } from '../callback.ts'
import type {
  Closable,
  Dealer,
  Frames,
  MessageTransport,
  Publisher,
  Router,
  SubscriberHandler,
} from '../types.ts'
import { ZmtpAcceptor } from './acceptor.ts'
import type { ZmtpConnection } from './connection.ts'
import { ZmtpConnector, type ZmtpEnvironment } from './connector.ts'

/** Messages that wait in a DEALER for its first or next connection. */
const DEALER_QUEUE_MAX = 1000

/** The roles, and one `close` for all that was opened. */
export function zmtpMessages(environment: ZmtpEnvironment): MessageTransport & Closable {
  const open = new Set<Closable>()
  let isClosed = false
  /** Closes once, and forgets. */
  const owned = <T extends Closable>(socket: T): T => {
    if (isClosed) socket.close()
    else open.add(socket)
    return socket
  }
  const released = (socket: Closable): void => void open.delete(socket)

  return {
    subscribe: (options, handler) => owned(subscribe(options, handler, environment, released)),
    publish: async options => owned(await publish(options, environment, released)),
    dial: (options, onMessage) => owned(dial(options, onMessage, environment, released)),
    serve: async (options, onMessage) => owned(await serve(options, onMessage, environment, released)),
    close() {
      isClosed = true
      for (const socket of [...open]) socket.close()
    },
  }
}

type Released = (socket: Closable) => void

function subscribe(
  { endpoint, topic }: { readonly endpoint: string; readonly topic: string },
  handler: SubscriberHandler,
  environment: ZmtpEnvironment,
  released: Released,
): Closable {
  const subscription = Buffer.concat([Uint8Array.of(1), new TextEncoder().encode(topic)])
  const connector = new ZmtpConnector(
    endpoint,
    'SUB',
    {
      connected() {
        connector.send([subscription])
        handler.connected()
      },
      message: frames => handler.message(frames),
      disconnected: () => handler.disconnected(),
    },
    environment,
  )
  const subscriber: Closable = {
    close() {
      released(subscriber)
      connector.close()
    },
  }
  return subscriber
}

async function publish(
  { endpoint }: { readonly endpoint: string },
  environment: ZmtpEnvironment,
  released: Released,
): Promise<Publisher> {
  /** Topics of every subscriber, with how often it asked for each. */
  const subscribers = new Map<ZmtpConnection, Map<string, number>>()
  let droppedCount = 0
  const acceptor = await ZmtpAcceptor.bind(
    endpoint,
    'PUB',
    {
      ready: peer => void subscribers.set(peer, new Map()),
      message(peer, [frame]) {
        const topics = subscribers.get(peer)
        if (topics !== undefined && frame !== undefined) changeTopics(topics, frame)
      },
      closed: peer => void subscribers.delete(peer),
    },
    environment,
  )
  const publisher = {
    endpoint: acceptor.endpoint,
    get droppedCount() {
      return droppedCount
    },
    send(frames: Frames) {
      if (frames.length === 0) return
      const topic = latin1(frames[0]!)
      for (const [peer, topics] of subscribers) {
        if (matches(topic, topics) && !peer.send(frames)) droppedCount++
      }
    },
    close() {
      released(publisher)
      acceptor.close()
      subscribers.clear()
    },
  }
  return publisher
}

/** Topics a subscriber may ask for; further ones are ignored. */
const TOPICS_MAX = 1024

/** A subscription is 1 and a topic, its end 0 and the topic. Topics are bytes, here one character each. */
function changeTopics(topics: Map<string, number>, frame: Uint8Array): void {
  const topic = latin1(frame.subarray(1))
  const count = topics.get(topic) ?? 0
  if (frame[0] === 1) {
    if (count > 0 || topics.size < TOPICS_MAX) topics.set(topic, count + 1)
  } else if (frame[0] === 0) {
    if (count > 1) topics.set(topic, count - 1)
    else topics.delete(topic)
  }
}

function matches(topic: string, topics: ReadonlyMap<string, number>): boolean {
  for (const prefix of topics.keys()) if (topic.startsWith(prefix)) return true
  return false
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')
}

function dial(
  { endpoint }: { readonly endpoint: string },
  onMessage: (frames: Frames) => void,
  environment: ZmtpEnvironment,
  released: Released,
): Dealer {
  let queue: Frames[] = []
  let isConnected = false
  let isClosed = false
  const connector = new ZmtpConnector(
    endpoint,
    'DEALER',
    {
      connected() {
        isConnected = true
        const waiting = queue
        queue = []
        for (const frames of waiting) connector.send(frames)
      },
      message: onMessage,
      disconnected() {
        isConnected = false
      },
    },
    environment,
  )
  const dealer: Dealer = {
    send(frames) {
      if (isClosed || frames.length === 0) return false
      if (isConnected) return connector.send(frames)
      if (queue.length >= DEALER_QUEUE_MAX) return false
      queue.push(frames)
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
  { endpoint }: { readonly endpoint: string },
  onMessage: (identity: Uint8Array, frames: Frames) => void,
  environment: ZmtpEnvironment,
  released: Released,
): Promise<Router> {
  const peersByIdentity = new Map<string, ZmtpConnection>()
  const identities = new Map<ZmtpConnection, Uint8Array>()
  let peerCount = 0
  const acceptor = await ZmtpAcceptor.bind(
    endpoint,
    'ROUTER',
    {
      ready(peer, ownName) {
        // A peer without a name gets one that starts with 0, which no name of a peer's own may.
        let identity = ownName
        if (ownName.length === 0 || ownName[0] === 0 || peersByIdentity.has(latin1(ownName))) {
          identity = new Uint8Array(5)
          new DataView(identity.buffer).setUint32(1, ++peerCount)
        }
        identities.set(peer, identity)
        peersByIdentity.set(latin1(identity), peer)
      },
      message(peer, frames) {
        const identity = identities.get(peer)
        if (identity !== undefined) callOwner(onMessage, identity.slice(), frames)
      },
      closed(peer) {
        const identity = identities.get(peer)
        if (identity !== undefined) peersByIdentity.delete(latin1(identity))
        identities.delete(peer)
      },
    },
    environment,
  )
  const router: Router = {
    endpoint: acceptor.endpoint,
    send: (identity, frames) =>
      frames.length > 0 && (peersByIdentity.get(latin1(identity))?.send(frames) ?? false),
    close() {
      released(router)
      acceptor.close()
      peersByIdentity.clear()
      identities.clear()
    },
  }
  return router
}
