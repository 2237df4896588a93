/** Registering a worker: from then on every router that watches the namespace has it in its fleet. */

import { type Log, systemClock, toErrorRecord } from '@homing/base'
import {
  brokerServer,
  type HttpTransport,
  type MessageTransport,
  type OwnPresence,
  systemTransport,
  type TcpLimits,
} from '@homing/transport'
import { BadRegistrationError } from './errors.ts'
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
  /**
   * With `serve`: takes requests over connections of routers here, 'tcp://0.0.0.0:9000', and not over the
   * broker; port 0 is any free port. Routers are told the host of the URL with this port, and need
   * --request-plane tcp.
   */
  readonly listen?: string | undefined
  /** With `listen`. */
  readonly tcp?: Partial<TcpLimits> | undefined
  /** Transports to use; default: its own sockets. On the main thread only. */
  readonly transport?: {
    readonly messages: Pick<MessageTransport, 'present'>
    readonly http: Pick<HttpTransport, 'serve' | 'call' | 'listen'>
  }
}

export interface Registered {
  /** Resolves once requests are taken and routers are told. Rejects with ListenError. */
  readonly ready: Promise<void>
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
  const { nats, namespace = 'default', log = { warn() {} }, serve, listen } = options
  const servers = nats.map(server => brokerServer(server))
  const url = serve === undefined || listen !== undefined ? options.url : withRequestSubject(options.url)
  const card = encodeRegistration(url, options.modelType)
  const endpoint = registrationEndpoint(options.etcd ?? servers, namespace)
  if (serve !== undefined) requestSettingsOf(serve)
  else if (listen !== undefined)
    throw new BadRegistrationError('listen', listen, 'it with serve, which answers what comes there')
  if (listen !== undefined && URL.parse(options.url)?.protocol === 'https:')
    throw new BadRegistrationError('listen', listen, 'it with an http URL: what comes there has no TLS')
  const own = options.transport === undefined ? systemTransport({ clock: systemClock, log }) : undefined
  const { messages, http } = options.transport ?? own!
  const subject = new URL(url).searchParams.get('requests')
  let served: ServedRequests | undefined
  let presence: OwnPresence | undefined
  let isClosed = false
  const present = (told: Uint8Array): void => {
    if (!isClosed) presence = messages.present({ endpoint, card: told }, { present() {}, gone() {} })
  }
  let ready = Promise.resolve()
  try {
    // Served before it is said.
    if (serve !== undefined)
      served = serveRequests(
        http,
        listen ?? `nats://${servers.join(',')}/${subject}`,
        serve,
        log,
        options.tcp,
      )
    if (listen === undefined) present(card)
    else
      ready = served!.listening.then(bound =>
        present(encodeRegistration(withRequestPort(url, bound), options.modelType)),
      )
    // Who registers may ask later, or never: then only the log tells that routers do not know of it.
    ready.catch((error: unknown) => {
      if (!isClosed) log.warn({ listen, error: toErrorRecord(error) }, 'worker is not registered')
    })
  } catch (thrown) {
    void served?.close(0)
    own?.close()
    throw thrown
  }
  let closed: Promise<void> | undefined
  return {
    ready,
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
      isClosed = true
      presence?.close()
      closed ??= Promise.all([served?.close(graceMs), presence?.closed]).then(() => own?.close())
      return closed
    },
  }
}

/** The host of the URL, with the port that is listened at. */
function withRequestPort(text: string, bound: string): string {
  const url = new URL(text)
  url.searchParams.set('requests', `tcp://${url.hostname}:${bound.slice(bound.lastIndexOf(':') + 1)}`)
  return url.href
}

function withRequestSubject(text: string): string {
  const url = URL.parse(text)
  // The encoder refuses a text that is no URL.
  if (url === null || url.searchParams.has('requests')) return text
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port
  url.searchParams.set('requests', requestSubjectOf(`${url.hostname}:${port}`))
  return url.href
}
