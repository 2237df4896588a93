/**
 * The transport of a simulated thread: a transport of a MemoryNetwork whose callbacks run on that thread, in
 * steps of its own (so a thread that hangs takes nothing), and whose sockets end with the thread.
 */

import type { SimulatedThread } from '@homing/actor/simulation'
import type { MemoryNetwork, Transport } from '@homing/transport'

export function threadTransport(network: MemoryNetwork, thread: SimulatedThread): Transport {
  const transport = network.transport()
  thread.onEnd(() => transport.close())
  if (thread.name === 'main') return transport
  const { messages } = transport
  /** Callbacks of one socket, until it is closed. */
  const socket = () => {
    let isClosed = false
    return {
      close(): void {
        isClosed = true
      },
      post(callback: () => void): void {
        thread.post(() => {
          if (!isClosed) callback()
        })
      },
    }
  }
  return {
    http: transport.http,
    brokers: () => transport.brokers(),
    tcp: transport.tcp,
    messages: {
      ...messages,
      subscribe(options, handler) {
        const { close, post } = socket()
        const subscriber = messages.subscribe(options, {
          message: (frames, number) => post(() => handler.message(frames, number)),
          connected: (path, life) => post(() => handler.connected(path, life)),
          disconnected: () => post(() => handler.disconnected()),
        })
        return {
          close() {
            close()
            subscriber.close()
          },
          done: number => subscriber.done?.(number),
        }
      },
      dial(options, onMessage) {
        const { close, post } = socket()
        const dealer = messages.dial(options, frames => post(() => onMessage(frames)))
        return {
          send: frames => dealer.send(frames),
          took: count => dealer.took?.(count),
          close() {
            close()
            dealer.close()
          },
        }
      },
    },
    close: () => transport.close(),
  }
}
