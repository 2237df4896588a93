/**
 * `homing indexer`: the prefix index alone, as a process.
 *
 * Standard output: the ready line, then what it began with and what to try. Logs go to standard error.
 */

import { asksForHelp, indexerCommand, parseSettings, renderHelp } from '@homing/config'
import type { CommandEntry } from './command-entry.ts'
import { faultsOfPeers, faultsOfRanks } from './indexer-workers.ts'
import { runService } from './running-service.ts'
import { serveIndexer } from './start-indexer.ts'

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
    return runService({
      settings,
      warnings,
      start: () => serveIndexer(settings),
      lines: ({ url, ranks, recovery }) => [
        `indexer ready on ${url} (pid ${process.pid})`,
        beginning(url, ranks, recovery),
      ],
    })
  },
}

function beginning(url: string, ranks: number, recovery: string | undefined): string {
  const of = ranks === 0 ? `no ranks yet: POST ${url}/register` : `ranks ${ranks}: GET ${url}/workers`
  return recovery === undefined ? of : `${of}\npeers: ${recovery}`
}
