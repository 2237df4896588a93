/**
 * A worker in a program: it takes requests over one request plane, registers itself if it is told where, and
 * gives the program the token ids of prompts.
 *
 *   router ──POST /v1/tokens──▶ http, tcp or nats ──▶ routes ──▶ generate(request, { signal })
 *      ▲                                                            │
 *      └──────────────── lines of token ids ◀──────────────────────┘
 *
 * Order of the start: requests are taken, then routers are told. Of the end: routers forget the worker, open
 * requests may finish, the rest is cut, and their signals abort.
 */

import { systemClock } from '@homing/base'
import {
  type Registered,
  registerWorker,
  requestSubjectOf,
  type ServedRequests,
  serveRequests,
} from '@homing/publisher'
import { brokerServer, systemTransport } from '@homing/transport'
import { workerMetrics } from './worker-metrics.ts'
import { type WorkerOptions, type WorkerSettings, workerSettings } from './worker-options.ts'
import { workerRoutes } from './worker-routes.ts'

export interface RunningWorker {
  /** For `--worker`, and for `POST /workers`: with all that a router must know of it. */
  readonly url: string
  /** Requests that are open. */
  readonly openRequests: number
  /**
   * Says good-bye: routers send nothing more. Open requests may finish for `graceMs` (default 0); after that
   * they are cut. Idempotent; resolves when nothing is open.
   */
  close(graceMs?: number): Promise<void>
}

/**
 * Resolves when requests are taken. Throws BadWorkerOptionError, BadRegistrationError, EndpointError and
 * ListenError. On the main thread only.
 */
export async function serveTokens(options: WorkerOptions): Promise<RunningWorker> {
  const settings = workerSettings(options)
  const { log = { warn() {} }, nats, etcd, namespace } = options
  const transport = systemTransport({ clock: systemClock, log })
  const startedSeconds = systemClock.wallMs() / 1000
  const { plane, requestsMax, bodyBytesMax } = settings
  let served: ServedRequests | undefined
  let registered: Registered | undefined
  try {
    const metrics = () =>
      workerMetrics(startedSeconds, {
        counts: routes.counts,
        openRequests: served?.openCount ?? 0,
        bodiesBytes: served?.bodiesBytes ?? 0,
        refusedBodies: served?.refusedBodies ?? 0,
        tcp: plane === 'tcp' ? transport.tcp : undefined,
      })
    const routes = workerRoutes({ options, log, startedSeconds: Math.floor(startedSeconds), metrics })
    const { handler } = routes
    const subject = requestSubjectOf(`${settings.advertisedHost}:${settings.port}`)
    served = serveRequests(
      transport.http,
      plane === 'nats'
        ? `nats://${nats!.map(server => brokerServer(server)).join(',')}/${subject}`
        : `${plane}://${settings.host}:${settings.port}`,
      { handler, callsMax: requestsMax, bodyBytesMax },
      log,
    )
    const url = urlOf(settings, await served.listening, subject)
    if (nats !== undefined || etcd !== undefined)
      registered = registerWorker({
        url,
        nats: nats ?? [],
        ...(etcd === undefined ? {} : { etcd }),
        ...(namespace === undefined ? {} : { namespace }),
        log,
      })
    await registered?.ready
    return running(url, served, registered, () => transport.close())
  } catch (thrown) {
    await Promise.all([registered?.close(0), served?.close(0)])
    transport.close()
    throw thrown
  }
}

function running(
  url: string,
  served: ServedRequests,
  registered: Registered | undefined,
  end: () => void,
): RunningWorker {
  let closed: Promise<void> | undefined
  return {
    url,
    get openRequests() {
      return served.openCount
    },
    close(graceMs = 0) {
      closed ??= Promise.all([registered?.close(graceMs), served.close(graceMs)]).then(end)
      return closed
    },
  }
}

/** `listening`: where requests are taken. */
function urlOf(
  { plane, advertisedHost, port, query }: WorkerSettings,
  listening: string,
  subject: string,
): string {
  const host =
    advertisedHost.includes(':') && !advertisedHost.startsWith('[') ? `[${advertisedHost}]` : advertisedHost
  const bound = plane === 'nats' ? String(port) : listening.slice(listening.lastIndexOf(':') + 1)
  const all = new URLSearchParams(query)
  if (plane === 'nats') all.set('requests', subject)
  if (plane === 'tcp') all.set('requests', `tcp://${host}:${bound}`)
  // What is in it needs no escapes, and people read it.
  const text = [...all].map(([name, value]) => `${name}=${value}`).join('&')
  return `http://${host}:${bound}${text === '' ? '' : `?${text}`}`
}
