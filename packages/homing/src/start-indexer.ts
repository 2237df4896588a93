/** A running index service as a value: for the command line, for tests, and for programs that embed it. */

import { createActorSystem } from '@homing/actor'
import { indexService } from '@homing/actors/index-service'
import { prepareCheckpointDirectory } from '@homing/actors/listener'
import { createLog, fromErrorRecord, systemClock } from '@homing/base'
import { completeSettings, type GivenSettings, type IndexerSettings, indexerCommand } from '@homing/config'
import { dialledHost } from './dialled-host.ts'
import { faultsOfPeers, faultsOfRanks, parsePeers, parseRanks } from './indexer-workers.ts'
import { requestsWithinFiles } from './open-files.ts'
import { checkPort } from './port-check.ts'
import type { RunningService } from './running-service.ts'
import { STOP_MS_MAX, serviceStop } from './stop-service.ts'

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

/** Beyond what peers may take. */
const READY_MS_MAX = 60_000

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
  const system = await createActorSystem({
    name: 'indexer',
    pools: { events: { count: settings.threads } },
    logLevel: settings.logLevel,
    logFormat: settings.logFormat,
    // As the router's (start-router.ts).
    warmSpare: false,
  })
  try {
    // Ranks may be registered later; those of the start stand for them.
    const needs = { openRequestsMax: settings.openRequestsMax, perRequest: 1, workers: registrations.length }
    const openRequestsMax = requestsWithinFiles(needs, createLog(settings.logLevel, {}, settings.logFormat))
    const ref = system.spawn(indexService, {
      name: 'index-service',
      args: {
        ...settings,
        openRequestsMax,
        registrations,
        peers,
        traceIdHeader: settings.traceIdHeader.toLowerCase(),
      },
      shutdown: STOP_MS_MAX,
    })
    const ended = system.whenTerminated(ref)
    const timeout = READY_MS_MAX + settings.peerWaitMs + peers.length * settings.peerTimeoutMs
    const ready = await ref.ask({ type: 'whenReady' }, { timeout })
    if ('code' in ready) throw fromErrorRecord(ready)

    return {
      url: `http://${dialledHost(ready.host)}:${ready.port}`,
      port: ready.port,
      system,
      ranks: ready.ranks,
      recovery: ready.recovery,
      whenFailed: ended.then(({ error }) => error?.message ?? 'the index service has ended'),
      stop: serviceStop(system, settings.shutdownTimeoutMs, graceMs =>
        ref.ask({ type: 'drain', graceMs }, { timeout: graceMs + STOP_MS_MAX }),
      ),
    }
  } catch (thrown) {
    await system.shutdown({ deadline: STOP_MS_MAX })
    throw thrown
  }
}
