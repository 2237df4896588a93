/** Arguments of the directory, from the settings of the router. */

import type { ActorRef } from '@homing/actor'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import { etcdServersOf, natsServersOf, type RouterSettings, streamOf, tcpLimitsOf } from '@homing/config'
import type { EventBroker, KeyLimits, KeySource, RequestPlane, WorkerSpec } from '@homing/fleet'
import type { BusyThresholds } from '@homing/load'
import type { StreamOptions } from '@homing/transport'
import type { KeeperMessage } from './messages.ts'
import type { RegistrationArgs } from './registered-workers.ts'
import type { DiscoveryArgs } from './worker-source.ts'
import type { GivenWorkersFile } from './workers-file-watch.ts'

export interface DirectoryArgs {
  readonly specs: readonly WorkerSpec[]
  /** Workers besides `specs`, and the file that is followed for them. */
  readonly fileWorkers?: GivenWorkersFile | undefined
  /** By shard. */
  readonly indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]
  /** False: no listeners, what was sent to a worker is taken to be cached there. */
  readonly kvEvents: boolean
  /**
   * True: the router does not look up what is cached, so there are no listeners and no guesses; default
   * false.
   */
  readonly ignoresCaches?: boolean
  /** Block size of every worker whose own parameters do not give one. */
  readonly blockSizeTokens: number | undefined
  /** Where workers register themselves; undefined: nowhere. */
  readonly registration?: RegistrationArgs | undefined
  /** Where workers are found besides; undefined: nowhere. */
  readonly discovery?: DiscoveryArgs | undefined
  /** Where KV events are published that have no port; undefined: nowhere. */
  readonly broker?: EventBroker | undefined
  /** The stream at that broker in which listeners follow the events of workers; undefined: none. */
  readonly stream?: StreamOptions | undefined
  /** Messages in it past which snapshots are taken; default: none are. */
  readonly snapshotThreshold?: number | undefined
  /** Etcd, where the lock for them is: 'http://host:port' each; undefined: it is at the broker. */
  readonly lockServers?: readonly string[] | undefined
  /** How workers are called that take requests so; undefined: all over sockets of their own. */
  readonly requestPlane?: RequestPlane | undefined
  readonly workerSlotsMax: number
  /** Thresholds of models for which none are set at run time; default: none. */
  readonly busyThresholds?: BusyThresholds
  /** Keeps run-time settings over restarts of the directory; undefined: they are lost. */
  readonly keeper?: ActorRef<KeeperMessage>
  /** The pool whose thread `<pool>-<shard>` hosts the listeners of a shard; default 'events'. */
  readonly eventPool?: string
  readonly probeIntervalMs: number
  readonly probeTimeoutMs: number
  /** API key of engines that name none of their own; undefined: they have none. */
  readonly engineKey?: KeySource | undefined
  /** Keys that workers of the API may name; default: none. */
  readonly apiKeys?: KeyLimits | undefined
  /** How long a worker may drain; default WORKER_DRAIN_MS_MAX. */
  readonly drainMsMax?: number
  /** Silence after which a replay has ended. */
  readonly replayTimeoutMs: number
  /** Where listeners keep checkpoints; undefined: nowhere. */
  readonly checkpointDirectory?: string | undefined
  readonly checkpointIntervalMs?: number
}

export type DirectorySettings = BusySettings &
  Pick<
    RouterSettings,
    | 'kvEvents'
    | 'overlapWeight'
    | 'blockSizeTokens'
    | 'workerNamespace'
    | 'natsServers'
    | 'discovery'
    | 'eventPlane'
    | 'durableKvEvents'
    | 'streamNamespace'
    | 'streamRetentionMs'
    | 'streamBytesMax'
    | 'snapshotThreshold'
    | 'lockStore'
    | 'etcdServers'
    | 'requestPlane'
    | 'requestWindowBytes'
    | 'tcpFrameBytesMax'
    | 'tcpBufferBytesMax'
    | 'tcpIdleTimeoutMs'
    | 'tcpConnectTimeoutMs'
    | 'workerSlotsMax'
    | 'probeIntervalMs'
    | 'probeTimeoutMs'
    | 'drainMsMax'
    | 'workerKeyDirectory'
    | 'workerKeyEnvPrefix'
    | 'replayTimeoutMs'
    | 'checkpointDirectory'
    | 'checkpointIntervalMs'
  >

type BusySettings = Pick<
  RouterSettings,
  'activeDecodeBlocksThreshold' | 'activePrefillTokensThreshold' | 'activePrefillTokensThresholdFraction'
>

/** `specs`, `fileWorkers`, `discovery` and `engineKey`: parsed from the settings of workers and keys. */
export function directoryArgsFromSettings(
  settings: DirectorySettings,
  parts: Pick<DirectoryArgs, 'specs' | 'fileWorkers' | 'discovery' | 'engineKey' | 'indexers' | 'keeper'>,
): DirectoryArgs {
  const { workerNamespace: namespace } = settings
  const servers = natsServersOf(settings.natsServers)
  const etcdServers = etcdServersOf(settings.etcdServers)
  const places = settings.discovery === 'etcd' ? etcdServers : servers
  return {
    ...parts,
    kvEvents: settings.kvEvents,
    ignoresCaches: settings.overlapWeight === 0,
    blockSizeTokens: settings.blockSizeTokens,
    registration: namespace === undefined ? undefined : { servers: places, namespace },
    broker: { servers, isPlane: settings.eventPlane === 'nats' },
    stream: streamOf(settings),
    snapshotThreshold: settings.snapshotThreshold,
    lockServers: settings.lockStore === 'etcd' ? etcdServers : undefined,
    requestPlane: requestPlaneOf(settings, servers),
    workerSlotsMax: settings.workerSlotsMax,
    busyThresholds: busyThresholdsOf(settings),
    probeIntervalMs: settings.probeIntervalMs,
    probeTimeoutMs: settings.probeTimeoutMs,
    drainMsMax: settings.drainMsMax,
    apiKeys: { directory: settings.workerKeyDirectory, envPrefix: settings.workerKeyEnvPrefix },
    replayTimeoutMs: settings.replayTimeoutMs,
    checkpointDirectory: settings.checkpointDirectory,
    checkpointIntervalMs: settings.checkpointIntervalMs,
  }
}

function requestPlaneOf(settings: DirectorySettings, servers: readonly string[]): RequestPlane | undefined {
  const { requestPlane: kind, requestWindowBytes: windowBytes } = settings
  if (kind === 'http') return undefined
  return kind === 'nats'
    ? { kind, servers, windowBytes }
    : { kind, windowBytes, limits: tcpLimitsOf(settings) }
}

function busyThresholdsOf(settings: BusySettings): BusyThresholds {
  return {
    decodeBlocksFraction: settings.activeDecodeBlocksThreshold,
    prefillTokens: settings.activePrefillTokensThreshold,
    prefillFraction: settings.activePrefillTokensThresholdFraction,
  }
}
