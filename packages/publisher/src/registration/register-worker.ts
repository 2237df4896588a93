/** Registering a worker: from then on every router that watches the namespace has it in its fleet. */

import { type Log, systemClock } from '@homing/base'
import {
  brokerServer,
  type HttpTransport,
  type MessageTransport,
  type OwnPresence,
  systemTransport,
} from '@homing/transport'
import { encodeRegistration, registrationEndpoint, requestSubjectOf } from './registration.ts'
import { requestSettingsOf, type ServeRequests } from './request-settings.ts'
import { type ServedRequests, serveRequests } from './serve-requests.ts'

export interface RegisterOptions {
  /** Base URL of the worker with the parameters of `--worker`: 'http://10.0.0.1:8000?ranks=2'. */
  readonly url: string
  /** 'Prefill' or 'Decode': the part of a request that it takes, as `role=` in the URL; see model-type.ts. */
  readonly modelType?: string | undefined
  /** Addresses of the broker: 'nats://10.0.0.9:4222' each. */
  readonly nats: readonly string[]
  /**
   * Registers at etcd, not at the broker: 'http://10.0.0.9:2379' each; routers need --discovery-backend etcd.
   */
  readonly etcd?: readonly string[] | undefined
  /** Routers of this namespace take it; default 'default'. */
  readonly namespace?: string
  /** Gets a warning when the broker cannot be reached; default: no log. */
  readonly log?: Pick<Log, 'warn'>
  /**
   * Answers requests that come over the broker, under the subject of `requests=` in the URL, or
   * homing.requests.HOST_PORT. Then nothing needs to listen at the URL, which only names the worker; routers
   * need --request-plane nats. Default: requests go to the URL.
   */
  readonly serve?: ServeRequests | undefined
  /** Transports to use; default: its own sockets. On the main thread only. */
  readonly transport?: {
    readonly messages: Pick<MessageTransport, 'present'>
    readonly http: Pick<HttpTransport, 'serve' | 'call'>
  }
}

export interface Registered {
  /** Of the requests that it serves, those that are open. */
  readonly openRequests: number
  /**
   * Bytes of their bodies, of those that are arriving, and of those that the connection to an engine still
   * has.
   */
  readonly bodiesBytes: number
  /** Requests that were refused, since the beginning, because there was no room for their bodies. */
  readonly refusedBodies: number
  /**
   * Says good-bye: routers forget the worker at once. Open requests may continue for `graceMs` (default 0),
   * new ones are refused; after that, open ones are cut. Idempotent; resolves when nothing is open any more.
   */
  close(graceMs?: number): Promise<void>
}

/**
 * Throws BadRegistrationError and EndpointError. A broker that is away is waited for, and so is one that
 * comes back.
 */
export function registerWorker(options: RegisterOptions): Registered {
  const { nats, namespace = 'default', log = { warn() {} }, serve } = options
  const servers = nats.map(server => brokerServer(server))
  const url = serve === undefined ? options.url : withRequestSubject(options.url)
  const card = encodeRegistration(url, options.modelType)
  const endpoint = registrationEndpoint(options.etcd ?? servers, namespace)
  if (serve !== undefined) requestSettingsOf(serve)
  const own = options.transport === undefined ? systemTransport({ clock: systemClock, log }) : undefined
  const { messages, http } = options.transport ?? own!
  const subject = new URL(url).searchParams.get('requests')
  let served: ServedRequests | undefined
  let presence: OwnPresence
  try {
    // Served before it is said.
    if (serve !== undefined)
      served = serveRequests(http, `nats://${servers.join(',')}/${subject}`, serve, log)
    presence = messages.present({ endpoint, card }, { present() {}, gone() {} })
  } catch (thrown) {
    void served?.close(0)
    own?.close()
    throw thrown
  }
  let closed: Promise<void> | undefined
  return {
    get openRequests() {
      return served?.openCount ?? 0
    },
    get bodiesBytes() {
      return served?.bodiesBytes ?? 0
    },
    get refusedBodies() {
      return served?.refusedBodies ?? 0
    },
    close(graceMs = 0) {
      presence.close()
      closed ??= Promise.all([served?.close(graceMs), presence.closed]).then(() => own?.close())
      return closed
    },
  }
}

function withRequestSubject(text: string): string {
  const url = URL.parse(text)
  // The encoder refuses a text that is no URL.
  if (url === null || url.searchParams.has('requests')) return text
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port
  url.searchParams.set('requests', requestSubjectOf(`${url.hostname}:${port}`))
  return url.href
}
