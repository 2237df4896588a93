/** Registering a worker: from then on every router that watches the namespace has it in its fleet. */

import { systemClock } from '@homing/clock'
import type { Log } from '@homing/log'
import { brokerServer, type MessageTransport, systemTransport } from '@homing/transport'
import { encodeRegistration, registrationEndpoint } from './registration.ts'

export interface RegisterOptions {
  /** Base URL of the worker with the parameters of `--worker`: 'http://10.0.0.1:8000?ranks=2'. */
  readonly url: string
  /** Addresses of the broker: 'nats://10.0.0.9:4222' each. */
  readonly nats: readonly string[]
  /** Routers of this namespace take it; default 'default'. */
  readonly namespace?: string
  /** Gets a warning when the broker cannot be reached; default: nobody does. */
  readonly log?: Pick<Log, 'warn'>
  /** Roles to use; default: sockets of its own. On the main thread only. */
  readonly messages?: Pick<MessageTransport, 'present'>
}

export interface Registered {
  /** Says good-bye: routers forget it at once. Idempotent. */
  close(): void
}

/** Throws BadRegistrationError and EndpointError. A broker that is away is waited for, and so is one that comes back. */
export function registerWorker(options: RegisterOptions): Registered {
  const { url, nats, namespace = 'default', log = { warn() {} }, messages } = options
  const card = encodeRegistration(url)
  const endpoint = registrationEndpoint(
    nats.map(server => brokerServer(server)),
    namespace,
  )
  const own = messages === undefined ? systemTransport({ clock: systemClock, log }) : undefined
  const presence = (messages ?? own!.messages).present({ endpoint, card }, { present() {}, gone() {} })
  return {
    close() {
      presence.close()
      own?.close()
    },
  }
}
