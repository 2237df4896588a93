/**
 * `homing indexer`: the prefix index alone, as a process.
 *
 * Standard output: the ready line, then what it began with and what to try. Logs go to standard error.
 */

import { createLog, systemClock } from '@homing/base'
import { asksForHelp, indexerCommand, parseSettings, renderHelp } from '@homing/config'
import type { CommandEntry } from './command-entry.ts'
import { faultsOfPeers, faultsOfRanks } from './indexer-workers.ts'
import { serveIndexer } from './start-indexer.ts'
import { untilStopped } from './until-stopped.ts'

export const indexerCommandEntry: CommandEntry = {
  summary: indexerCommand.summary,

  async run(argv) {
    if (asksForHelp(indexerCommand, argv)) {
      console.log(renderHelp(indexerCommand))
      return 0
    }
    const { settings, warnings } = parseSettings(indexerCommand, argv, process.env, {
      listChecks: { workers: faultsOfRanks, peers: faultsOfPeers },
    })
    const log = createLog(settings.logLevel, {}, settings.logFormat)
    for (const warning of warnings) log.warn({}, warning)

    // Listens for signals from the first moment: one that arrives while starting must end the start.
    const stopped = untilStopped(systemClock, settings)
    const indexer = await serveIndexer(settings)
    console.log(`indexer ready on ${indexer.url} (pid ${process.pid})`)
    console.log(beginning(indexer.url, indexer.ranks, indexer.recovery))

    const failed = indexer.whenFailed.then(reason => ({ reason, exitCode: 1 }))
    const ended = await Promise.race([stopped.then(reason => ({ reason, exitCode: 0 })), failed])
    // Not by the log: why it failed must be told at every log level.
    if (ended.exitCode !== 0) console.error(`homing: ${ended.reason}`)
    log.info({ reason: ended.reason, graceMs: settings.shutdownTimeoutMs }, 'stopping')
    const { cutRequests, slowActors } = await indexer.stop(settings.shutdownTimeoutMs)
    log.info({ cutRequests, slowActors: slowActors.join(', ') }, 'stopped')
    return ended.exitCode
  },
}

function beginning(url: string, ranks: number, recovery: string | undefined): string {
  const of = ranks === 0 ? `no ranks yet: POST ${url}/register` : `ranks ${ranks}: GET ${url}/workers`
  return recovery === undefined ? of : `${of}\npeers: ${recovery}`
}
