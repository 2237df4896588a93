/** Arguments of the directory, from the settings of the router. */

import { natsServersOf, type RouterSettings } from '@homing/config'
import type { BusyThresholds } from '@homing/load'
import type { DirectoryArgs } from './directory.ts'

export type DirectorySettings = BusySettings &
  Pick<
    RouterSettings,
    | 'kvEvents'
    | 'blockSizeTokens'
    | 'workerNamespace'
    | 'natsServers'
    | 'eventPlane'
    | 'requestPlane'
    | 'requestWindowBytes'
    | 'workerSlotsMax'
    | 'probeIntervalMs'
    | 'probeTimeoutMs'
    | 'drainMsMax'
    | 'replayTimeoutMs'
    | 'checkpointDirectory'
    | 'checkpointIntervalMs'
  >

type BusySettings = Pick<
  RouterSettings,
  'activeDecodeBlocksThreshold' | 'activePrefillTokensThreshold' | 'activePrefillTokensThresholdFraction'
>

/** `specs`, `fileWorkers` and `engineKey`: what the settings of workers and keys say, once it is read. */
export function directoryArgsFromSettings(
  settings: DirectorySettings,
  parts: Pick<DirectoryArgs, 'specs' | 'fileWorkers' | 'engineKey' | 'indexers' | 'keeper'>,
): DirectoryArgs {
  const { workerNamespace: namespace, requestPlane, requestWindowBytes: windowBytes } = settings
  const servers = natsServersOf(settings.natsServers)
  return {
    ...parts,
    kvEvents: settings.kvEvents,
    blockSizeTokens: settings.blockSizeTokens,
    registration: namespace === undefined ? undefined : { servers, namespace },
    broker: { servers, isPlane: settings.eventPlane === 'nats' },
    requestBroker: requestPlane === 'http' ? undefined : { servers, windowBytes },
    workerSlotsMax: settings.workerSlotsMax,
    busyThresholds: busyThresholdsOf(settings),
    probeIntervalMs: settings.probeIntervalMs,
    probeTimeoutMs: settings.probeTimeoutMs,
    drainMsMax: settings.drainMsMax,
    replayTimeoutMs: settings.replayTimeoutMs,
    checkpointDirectory: settings.checkpointDirectory,
    checkpointIntervalMs: settings.checkpointIntervalMs,
  }
}

function busyThresholdsOf(settings: BusySettings): BusyThresholds {
  return {
    decodeBlocksFraction: settings.activeDecodeBlocksThreshold,
    prefillTokens: settings.activePrefillTokensThreshold,
    prefillFraction: settings.activePrefillTokensThresholdFraction,
  }
}
