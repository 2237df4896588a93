/**
 * `homing sidecar`: a sidecar for each rank of an engine, as a process.
 *
 * Standard output: the ready line, then one line per rank and how a router is pointed at it. Logs go to standard error.
 */

import { systemClock, systemRandom } from '@homing/clock'
import { asksForHelp, parseSettings, renderHelp, type SidecarSettings, sidecarCommand } from '@homing/config'
import { createLog, type Log } from '@homing/log'
import { Sidecar } from '@homing/publisher'
import { systemTransport, type Transport } from '@homing/transport'
import type { CommandEntry } from './command-entry.ts'
import { untilStopped } from './until-stopped.ts'

export const sidecarCommandEntry: CommandEntry = {
  summary: sidecarCommand.summary,

  async run(argv) {
    if (asksForHelp(argv)) {
      console.log(renderHelp(sidecarCommand))
      return 0
    }
    const { settings, warnings } = parseSettings(sidecarCommand, argv, process.env)
    const log = createLog(settings.logLevel)
    for (const warning of warnings) log.warn({}, warning)

    const stopped = untilStopped(systemClock, settings)
    const transport = systemTransport({ clock: systemClock, log })
    const sidecars: Sidecar[] = []
    try {
      for (let rank = 0; rank < settings.ranks; rank++) {
        sidecars.push(await openSidecar(settings, rank, transport, log))
      }
      const [first] = sidecars
      console.log(`sidecar ready on ${first!.endpoint} (pid ${process.pid})`)
      for (const [rank, { endpoint, replayEndpoint }] of sidecars.entries()) {
        const engine = engineEndpoint(settings, rank)
        console.log(`rank ${rank}: engine ${engine}, events ${endpoint}, replay ${replayEndpoint}`)
      }
      const query = `events=${portOf(first!.endpoint)}&replay=${portOf(first!.replayEndpoint)}`
      console.log(`point the router at it: homing router --worker 'http://ENGINE:PORT?${query}'`)

      const reason = await stopped
      log.info({ reason, graceMs: settings.shutdownTimeoutMs }, 'stopping')
      await Promise.all(sidecars.map(sidecar => sidecar.close(settings.shutdownTimeoutMs)))
      return 0
    } finally {
      transport.close()
    }
  },
}

function openSidecar(
  settings: SidecarSettings,
  rank: number,
  { messages }: Transport,
  log: Log,
): Promise<Sidecar> {
  const { host, eventsPort, replayPort } = settings
  const bound = (port: number): string => `tcp://${host.includes(':') ? `[${host}]` : host}:${port}`
  return Sidecar.open({
    ...settings,
    clock: systemClock,
    random: systemRandom,
    messages,
    log,
    engineEndpoint: engineEndpoint(settings, rank),
    eventsEndpoint: bound(eventsPort === 0 ? 0 : eventsPort + rank),
    replayEndpoint: bound(replayPort === 0 ? 0 : replayPort + rank),
    replayForm: 'topic',
  })
}

function engineEndpoint({ engineEvents }: SidecarSettings, rank: number): string {
  // The rules of the settings refuse to go on without one.
  const base = engineEvents!
  return rank === 0 ? base : `${base.slice(0, base.lastIndexOf(':'))}:${portOf(base) + rank}`
}

function portOf(endpoint: string): number {
  return Number(endpoint.slice(endpoint.lastIndexOf(':') + 1))
}
