/**
 * `homing sidecar`: a process beside an engine: one sidecar per rank that subscribes, or one that polls for
 * all ranks.
 *
 * Standard output: the ready line, then one line per rank and how to point a router at it. Logs go to
 * standard error.
 */

import { createLog, type Log, systemClock, systemRandom } from '@homing/base'
import {
  asksForHelp,
  etcdServersOf,
  natsServersOf,
  parseSettings,
  renderHelp,
  type SidecarSettings,
  sidecarCommand,
  streamOf,
  tcpLimitsOf,
} from '@homing/config'
import { subjectOf } from '@homing/fleet'
import {
  PolledSidecar,
  type Registered,
  Republisher,
  type RepublisherOptions,
  registerWorker,
  Sidecar,
} from '@homing/publisher'
import { systemTransport, type Transport } from '@homing/transport'
import { openBrokerAccess } from './broker-access.ts'
import type { CommandEntry } from './command-entry.ts'
import { untilStopped } from './until-stopped.ts'

export const sidecarCommandEntry: CommandEntry = {
  summary: sidecarCommand.summary,

  async run(argv) {
    if (asksForHelp(sidecarCommand, argv)) {
      console.log(renderHelp(sidecarCommand))
      return 0
    }
    const { settings, warnings } = parseSettings(sidecarCommand, argv, process.env)
    const log = createLog(settings.logLevel, {}, settings.logFormat)
    for (const warning of warnings) log.warn({}, warning)

    if (settings.eventPlane === 'nats') await openBrokerAccess(settings, 'sidecar', log)
    const stopped = untilStopped(systemClock, settings)
    const transport = systemTransport({ clock: systemClock, log })
    try {
      const sidecar =
        settings.poll === undefined
          ? await openSubscribed(settings, transport, log)
          : await openPolled(settings, settings.poll, transport, log)
      const [first] = sidecar.ranks
      console.log(`sidecar ready on ${first!.endpoint} (pid ${process.pid})`)
      for (const [rank, { endpoint, replayEndpoint }] of sidecar.ranks.entries()) {
        const engine = settings.poll ?? engineEndpoint(settings, rank)
        console.log(`rank ${rank}: engine ${engine}, events ${endpoint}, replay ${replayEndpoint}`)
      }
      console.log(`point the router at it: ${routerLine(settings, first!)}`)

      const registered = registerSidecar(settings, transport, log)
      await registered?.ready
      const reason = await stopped
      log.info({ reason, graceMs: settings.shutdownTimeoutMs }, 'stopping')
      const graceMs = settings.shutdownTimeoutMs
      await Promise.all([registered?.close(graceMs), sidecar.close(graceMs)])
      return 0
    } finally {
      transport.close()
    }
  },
}

/** A running sidecar, however it hears of the engine. */
interface Running {
  readonly ranks: readonly { readonly endpoint: string; readonly replayEndpoint: string }[]
  close(graceMs: number): Promise<void>
}

async function openSubscribed(settings: SidecarSettings, transport: Transport, log: Log): Promise<Running> {
  const ranks: Sidecar[] = []
  for (let rank = 0; rank < settings.ranks; rank++) {
    const options = republished(settings, rank, transport)
    ranks.push(await Sidecar.open({ ...options, log, engineEndpoint: engineEndpoint(settings, rank) }))
  }
  return { ranks, close: graceMs => closeAll(ranks, graceMs) }
}

async function openPolled(
  settings: SidecarSettings,
  url: string,
  transport: Transport,
  log: Log,
): Promise<Running> {
  const ranks: Republisher[] = []
  for (let rank = 0; rank < settings.ranks; rank++) {
    ranks.push(await Republisher.open({ ...republished(settings, rank, transport), log }))
  }
  const { http } = transport
  const engineOrigin = `http://${hostOfPoll(url)}`
  const sidecar = new PolledSidecar({ ...settings, clock: systemClock, http, log, engineOrigin, ranks })
  sidecar.start()
  return {
    ranks,
    async close(graceMs) {
      await sidecar.close()
      await closeAll(ranks, graceMs)
    },
  }
}

async function closeAll(ranks: readonly (Sidecar | Republisher)[], graceMs: number): Promise<void> {
  await Promise.all(ranks.map(rank => rank.close(graceMs)))
}

function republished(settings: SidecarSettings, rank: number, { messages }: Transport): RepublisherOptions {
  const { host, eventsPort, replayPort } = settings
  const atBroker =
    settings.eventPlane === 'nats'
      ? `nats://${natsServersOf(settings.natsServers).join(',')}/${subjectOfSidecar(settings)}.${rank}`
      : undefined
  const bound = (port: number): string => `tcp://${hostOfEndpoint(host)}:${port}`
  return {
    ...settings,
    clock: systemClock,
    random: systemRandom,
    messages,
    eventsEndpoint: atBroker ?? bound(eventsPort === 0 ? 0 : eventsPort + rank),
    replayEndpoint: atBroker ?? bound(replayPort === 0 ? 0 : replayPort + rank),
    replayForm: 'topic',
    stream: streamOf(settings),
  }
}

/** Host, port and path, as routers have them in the URL of the worker. */
function hostOfPoll(poll: string): string {
  const { host, pathname } = new URL(poll)
  return `${host}${pathname.replace(/\/$/, '')}`
}

/** The rules of the settings refuse to go on without any of the three. */
function subjectOfSidecar({ natsSubject, worker, poll }: SidecarSettings): string {
  return natsSubject ?? subjectOf(worker ?? hostOfPoll(poll!))
}

/** The engine, under the URL that routers reach it with. */
function registerSidecar(settings: SidecarSettings, transport: Transport, log: Log): Registered | undefined {
  const { register: namespace, worker, natsSubject, natsServers, ranks, requestPlane, role } = settings
  if (namespace === undefined) return undefined
  const query = new URLSearchParams({ nats: natsSubject ?? subjectOf(worker!) })
  if (ranks > 1) query.set('ranks', String(ranks))
  const nats = natsServersOf(natsServers)
  const { openRequestsMax, bodyBytesMax, bodiesBytesMax, bodyTimeoutMs } = settings
  const serve = {
    engine: settings.engineUrl ?? `http://${worker}`,
    callsMax: openRequestsMax,
    bodyBytesMax,
    bodiesBytesMax,
    bodySilenceMsMax: bodyTimeoutMs,
  }
  return registerWorker({
    url: `http://${worker}?${query}`,
    nats,
    etcd: settings.discovery === 'etcd' ? etcdServersOf(settings.etcdServers) : undefined,
    namespace,
    modelType: role === 'both' ? undefined : role,
    log,
    transport,
    serve: requestPlane === 'http' ? undefined : serve,
    listen:
      requestPlane === 'tcp' ? `tcp://${hostOfEndpoint(settings.host)}:${settings.requestPort}` : undefined,
    tcp: tcpLimitsOf(settings),
  })
}

/** As it stands in an endpoint. */
function hostOfEndpoint(host: string): string {
  return host.includes(':') ? `[${host}]` : host
}

function routerLine(settings: SidecarSettings, first: Running['ranks'][number]): string {
  if (settings.eventPlane === 'zmq') {
    const query = `events=${portOf(first.endpoint)}&replay=${portOf(first.replayEndpoint)}`
    return `homing router --worker 'http://ENGINE:PORT?${query}'`
  }
  const servers = natsServersOf(settings.natsServers).map(server => `--nats nats://${server}`)
  const { natsSubject, worker, poll } = settings
  const url =
    natsSubject === undefined
      ? `http://${worker ?? hostOfPoll(poll!)}`
      : `'http://ENGINE:PORT?nats=${natsSubject}'`
  return `homing router --event-plane nats ${servers.join(' ')} --worker ${url}`
}

function engineEndpoint({ engineEvents }: SidecarSettings, rank: number): string {
  // The rules of the settings refuse to go on without one.
  const base = engineEvents!
  return rank === 0 ? base : `${base.slice(0, base.lastIndexOf(':'))}:${portOf(base) + rank}`
}

function portOf(endpoint: string): number {
  return Number(endpoint.slice(endpoint.lastIndexOf(':') + 1))
}
