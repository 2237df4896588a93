/**
 * The host: opens the ZeroMQ sockets of all threads on the main thread, where the library is safe (see
 * library.ts).
 *
 *   thread                                   main thread
 *   hostedMessages ── MessagePort ────────── HostedClient ── mainMessages ── libzmq, nats
 *
 * In     commands to open, and batches of messages to send (protocol.ts, batch.ts).
 * Out    batches of what was received: one per turn of the event loop, so that a burst costs one wake-up.
 * Owns   the sockets of a client, until its port closes: when the client closes it, or its thread ends,
 *        however that happens. They are closed at once, so the thread that replaces it can bind the same
 *        ports.
 * Bounds if a client does not read, its sockets wait and the queues of their peers fill; the host drops
 *        nothing.
 */

import type { MessagePort } from 'node:worker_threads'
import { systemClock } from '@homing/base'
import { faulted } from '../callback.ts'
import type { BindOptions, Offered, Publisher, RouterSocket } from '../message-types.ts'
import { OFFERED, OP, type Op, PATHS } from './batch.ts'
import { fatal } from './library.ts'
import { Link } from './link.ts'
import { mainMessages } from './main-messages.ts'
import type { ZmqMessages } from './messages.ts'
import { type ClientCommand, type HostCommand, isHandOver } from './protocol.ts'

let isInstalled = false
const clients = new Set<HostedClient>()

/** Takes over the ports of threads from now on. Idempotent; for the main thread. */
export function installZmqHost(): void {
  if (isInstalled) return
  isInstalled = true
  process.on('workerMessage', (message: unknown) => {
    if (isHandOver(message)) hostClient(message.port)
  })
}

/** Opens sockets for the client at the other end of the port, until that end closes. */
export function hostClient(port: MessagePort): void {
  clients.add(new HostedClient(port))
}

/** How many clients are connected; for tests. */
export function hostedClientCount(): number {
  return clients.size
}

interface Hosted {
  done?(number: number): void
  took?(count: number): void
  send?(frames: readonly Uint8Array[]): void
  offer?(frames: readonly Uint8Array[]): Offered | Promise<Offered>
  close(): void
}

class HostedClient {
  readonly #link: Link
  readonly #messages: ZmqMessages
  /** Undefined: being bound, and closed already when it is not there at all. */
  readonly #sockets = new Map<number, Hosted | undefined>()
  #drained: PromiseWithResolvers<void> | undefined

  constructor(port: MessagePort) {
    this.#messages = mainMessages({
      clock: systemClock,
      log: { warn: (fields, text) => this.#tell({ type: 'warning', fields, text }) },
      gate: () => (this.#link.isFull ? this.#whenDrained() : undefined),
    })
    this.#link = new Link(
      port,
      {
        entry: (op, socket, value, frames) => this.#onEntry(op, socket, value, frames),
        command: command => this.#onCommand(command as HostCommand),
        drained: () => this.#drained?.resolve(),
      },
      flush => setImmediate(flush),
    )
    port.once('close', () => this.#close())
    // A thread keeps the process alive while it lives; the port need not.
    port.unref()
  }

  #close(): void {
    clients.delete(this)
    this.#sockets.clear()
    this.#messages.close()
    this.#drained?.resolve()
  }

  #whenDrained(): Promise<void> {
    if (this.#drained === undefined) {
      this.#drained = Promise.withResolvers()
      void this.#drained.promise.then(() => {
        this.#drained = undefined
      })
    }
    return this.#drained.promise
  }

  #tell(command: ClientCommand): void {
    this.#link.command(command)
  }

  #onCommand(command: HostCommand): void {
    try {
      this.#carryOut(command)
    } catch (error) {
      faulted(command.endpoint, error)
    }
  }

  #carryOut(command: HostCommand): void {
    const { type, socket, endpoint } = command
    const link = this.#link
    switch (type) {
      case 'subscribe':
        this.#sockets.set(
          socket,
          this.#messages.subscribe(
            { endpoint, topic: command.topic, stream: command.stream },
            {
              message: (frames, number) => link.add(OP.message, socket, number ?? 0, frames),
              connected: (path = 'publisher', life) =>
                link.add(
                  OP.connected,
                  socket,
                  PATHS.indexOf(path),
                  life === undefined ? [] : [Buffer.from(life)],
                ),
              disconnected: () => link.add(OP.disconnected, socket),
            },
          ),
        )
        break
      case 'dial':
        this.#sockets.set(
          socket,
          this.#messages.dial(
            { endpoint, stream: command.stream },
            frames => link.add(OP.message, socket, 0, frames),
            () => link.add(OP.taken, socket, 1),
          ),
        )
        break
      case 'publish':
        this.#bind(socket, this.#messages.publish(bindOptions(command)), publisher => publisher)
        break
      case 'serve': {
        const router = this.#messages.serve(
          bindOptions(command),
          (identity, frames) => link.add(OP.message, socket, 0, [identity, ...frames]),
          identity => link.add(OP.gone, socket, 0, [identity]),
        )
        this.#bind(socket, router, hostRouter)
      }
    }
  }

  #bind<T extends Publisher | RouterSocket>(
    socket: number,
    binding: Promise<T>,
    host: (bound: T) => Hosted,
  ): void {
    this.#sockets.set(socket, undefined)
    binding
      .then(
        bound => {
          if (!this.#sockets.has(socket)) {
            bound.close()
            return
          }
          this.#sockets.set(socket, host(bound))
          this.#tell({ type: 'bound', socket, endpoint: bound.endpoint })
        },
        (error: unknown) => {
          this.#sockets.delete(socket)
          this.#tell({ type: 'refused', socket, reason: reasonOf(error) })
        },
      )
      .catch(fatal)
  }

  #onEntry(op: Op, socket: number, value: number, frames: Uint8Array[]): void {
    const hosted = this.#sockets.get(socket)
    if (op === OP.message) hosted?.send?.(frames)
    else if (op === OP.handled) {
      hosted?.done?.(value)
      hosted?.took?.(value)
    } else if (op === OP.offer) this.#offer(socket, value, hosted?.offer?.(frames) ?? 'gone').catch(fatal)
    else if (op === OP.close) {
      this.#sockets.delete(socket)
      hosted?.close()
    }
  }

  async #offer(socket: number, value: number, outcome: Offered | Promise<Offered>): Promise<void> {
    const position = OFFERED.indexOf(await outcome)
    this.#link.add(OP.offered, socket, value, [Uint8Array.of(position)])
  }
}

function bindOptions({
  endpoint,
  queuedMessagesMax,
  stream,
}: Extract<HostCommand, { readonly type: 'publish' | 'serve' }>): BindOptions {
  return queuedMessagesMax === undefined ? { endpoint, stream } : { endpoint, queuedMessagesMax, stream }
}

function hostRouter(router: RouterSocket): Hosted {
  return {
    send: ([identity, ...frames]) => void router.send(identity!, frames),
    offer: ([identity, ...frames]) => router.offer(identity!, frames),
    close: () => router.close(),
  }
}

function reasonOf(error: unknown): string {
  const { details } = error as { readonly details?: { readonly reason?: unknown } }
  return String(details?.reason ?? error)
}
