/** A running index service as a value: for the command line, for tests, and for programs that embed it. */

import { indexService } from '@homing/actors/index-service'
import { labelShapeOf } from '@homing/actors/indexer'
import { prepareCheckpointDirectory } from '@homing/actors/listener'
import { systemClock } from '@homing/base'
import { completeSettings, type GivenSettings, type IndexerSettings, indexerCommand } from '@homing/config'
import { faultsOfPeers, faultsOfRanks, parsePeers, parseRanks } from './indexer-workers.ts'
import { checkPort } from './port-check.ts'
import type { RunningService } from './running-service.ts'
import { READY_MS_MAX, serveService } from './serve-service.ts'
import { STOP_MS_MAX } from './stop-service.ts'

export interface RunningIndexer extends RunningService {
  /** Ranks that were given at the start. */
  readonly ranks: number
  /** What came of the peers, for people; undefined: none was given. */
  readonly recovery: string | undefined
}

/**
 * What a program can set; what it leaves out has the default of the command line. See docs/configuration.md
 * for each.
 */
export type GivenIndexerSettings = Omit<GivenSettings<IndexerSettings>, 'detach'>

/** All settings of an indexer. Throws SettingsError for all that is wrong with them at once. */
export function indexerSettingsOf(given: GivenIndexerSettings): IndexerSettings {
  const listChecks = { workers: faultsOfRanks, peers: faultsOfPeers }
  return completeSettings(indexerCommand, given, { listChecks, without: ['detach'] })
}

/** Starts an indexer in this process, with settings that have no faults; see `startIndexer`. */
export async function serveIndexer(settings: IndexerSettings): Promise<RunningIndexer> {
  const peers = parsePeers(settings.peers)
  const registrations = parseRanks(settings.workers, {
    model: settings.modelName,
    group: settings.routingGroup,
    // A rule of the settings: where there are ranks there is a block size.
    blockSizeTokens: settings.blockSizeTokens ?? 0,
  })
  // Before its peers are waited for.
  await checkPort(settings)
  const { checkpointDirectory } = settings
  if (checkpointDirectory !== undefined)
    await prepareCheckpointDirectory(
      checkpointDirectory,
      systemClock.wallMs(),
      registrations.map(({ instanceId }) => String(instanceId)),
    )
  const { ready, ...running } = await serveService({
    name: 'indexer',
    called: 'the index service',
    settings,
    pools: { events: { count: settings.threads } },
    // Ranks may be registered later; those of the start stand for them.
    workers: registrations.length,
    readyMsMax: READY_MS_MAX + settings.peerWaitMs + peers.length * settings.peerTimeoutMs,
    spawn: (system, openRequestsMax) =>
      system.spawn(indexService, {
        name: 'index-service',
        args: {
          ...settings,
          labelShape: labelShapeOf(settings),
          openRequestsMax,
          registrations,
          peers,
          traceIdHeader: settings.traceIdHeader.toLowerCase(),
        },
        shutdown: STOP_MS_MAX,
      }),
  })
  return { ...running, ranks: ready.ranks, recovery: ready.recovery }
}
