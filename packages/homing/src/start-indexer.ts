/** A running index service as a value: for the command line, for tests, and for programs that embed it. */

import { type ActorSystem, createActorSystem } from '@homing/actor'
import { systemClock } from '@homing/clock'
import type { IndexerSettings } from '@homing/config'
import { fromErrorRecord } from '@homing/errors'
import { indexService } from '@homing/index-service'
import { prepareCheckpointDirectory } from '@homing/listener'
import { dialledHost } from './dialled-host.ts'
import { parsePeers, parseRanks } from './indexer-workers.ts'
import { STOP_MS_MAX, type StopReport, serviceStop } from './stop-service.ts'

export interface RunningIndexer {
  /** 'http://host:port', with a host that can be dialled. */
  readonly url: string
  readonly port: number
  readonly system: ActorSystem
  /** Ranks that were given at the start. */
  readonly ranks: number
  /** What came of the peers, for people; undefined: none was given. */
  readonly recovery: string | undefined
  /** Resolves with the reason when the indexer cannot go on by itself; pending while it serves. */
  readonly whenFailed: Promise<string>
  /** Takes no more requests, lets open ones end for `graceMs`, stops every actor and thread. Idempotent. */
  stop(graceMs: number): Promise<StopReport>
}

/** Beyond what peers may take. */
const READY_MS_MAX = 60_000

/**
 * Starts an indexer and resolves when it serves: after its peers, where there are any. Rejects with ListenError when the port
 * cannot be had, and with AccessLogError. The settings must have no faults: see `faultsOfRanks`, `faultsOfPeers`.
 */
export async function startIndexer(settings: IndexerSettings): Promise<RunningIndexer> {
  const peers = parsePeers(settings.peers)
  const registrations = parseRanks(settings.workers, {
    model: settings.modelName,
    group: settings.routingGroup,
    // A rule of the settings: where there are ranks there is a block size.
    blockSizeTokens: settings.blockSizeTokens ?? 0,
  })
  const { checkpointDirectory } = settings
  if (checkpointDirectory !== undefined)
    await prepareCheckpointDirectory(checkpointDirectory, systemClock.wallMs())
  const system = await createActorSystem({
    name: 'indexer',
    pools: { events: { count: settings.threads } },
    logLevel: settings.logLevel,
  })
  try {
    const ref = system.spawn(indexService, {
      name: 'index-service',
      args: {
        ...settings,
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
      stop: serviceStop(system, graceMs =>
        ref.ask({ type: 'drain', graceMs }, { timeout: graceMs + STOP_MS_MAX }),
      ),
    }
  } catch (thrown) {
    await system.shutdown({ deadline: STOP_MS_MAX })
    throw thrown
  }
}
