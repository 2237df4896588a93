import type { ConsoleArgs } from '@homing/actors/console'
import type {
  DirectoryArgs,
  EventBroker,
  GivenWorkersFile,
  KeySource,
  RequestBroker,
  WorkerSpec,
} from '@homing/actors/directory'
import type { GatewayArgs } from '@homing/actors/gateway'
import type { ReplicaPlane } from '@homing/actors/replica-bridge'
import type { LoadedTokenizer } from '@homing/tokenization'
import type { QueueSettings } from './queue-rules.ts'

/** Arguments that the guardian gives to the actors; plain data, in the units of the names. See packages/config. */
export interface GuardianArgs extends QueueSettings {
  readonly specs: readonly WorkerSpec[]
  readonly fileWorkers?: GivenWorkersFile | undefined
  /** Where the API key of the engines stands, not the key. */
  readonly engineKey?: KeySource | undefined
  /** Certificates in PEM that are believed besides those of Node and of the system. */
  readonly engineCertificates?: string | undefined
  /** Where workers register themselves; undefined: nowhere. */
  readonly registration?: DirectoryArgs['registration']
  /** Other routers of the same workers; undefined: there are none. */
  readonly replication?:
    | {
        readonly plane: ReplicaPlane
        readonly delayMs: number
        readonly expiryMs: number
        /** 16 hexadecimal digits that no other router has, where random numbers may be equal. */
        readonly salt?: string
      }
    | undefined
  /** Where KV events are published that have no port; undefined: nowhere. */
  readonly broker?: EventBroker | undefined
  /** Over which workers are called that take requests there; undefined: none is. */
  readonly requestBroker?: RequestBroker | undefined
  readonly host: string
  readonly port: number
  /** Port of the operator routes; undefined: they are on `port`. */
  readonly adminPort?: number | undefined
  /** Undefined: only callers on this machine may change workers and thresholds. */
  readonly adminKey?: string | undefined
  readonly drainMsMax?: number
  readonly bodyBytesMax: number
  readonly bodiesBytesMax: number
  readonly bodyTimeoutMs: number
  readonly clientStallTimeoutMs: number
  readonly page: ConsoleArgs['page']
  readonly pageTabsMax: number
  readonly openRequestsMax: number
  readonly rememberedResponsesMax: number
  readonly workerSlotsMax: number
  /** Share of the decisions by `auto` that its guard sends by least-loaded. */
  readonly guardShare: number
  readonly overlapCredit: number
  readonly creditDecay: number
  readonly activeRequestWeight: number
  readonly prefillMsPerToken: number
  readonly attentionMsPerMillionPairs: number
  readonly overlapWeight: number
  readonly temperature: number
  readonly activeRequestExpiryMs: number
  /** 0: sessions are not looked at. */
  readonly affinityTtlMs?: number
  readonly affinityMode?: 'soft' | 'hard'
  readonly affinityPrefixBlocks?: number
  readonly affinitiesMax?: number
  readonly trackActiveBlocks?: boolean
  readonly trackPrefillTokens?: boolean
  readonly trackOutputBlocks?: boolean
  readonly assumeKvReuse?: boolean
  readonly decisionsKept: number
  readonly decisionRowsKept: number
  readonly kvEvents: boolean
  readonly guessTtlWithoutEventsMs: number
  readonly guessBlocksMax: number
  readonly pruneTargetRatio: number
  /** 0: what was sent to a worker with events does not count before they say so. */
  readonly guessTtlUntilEventsMs: number
  readonly hostCacheHitWeight: number
  readonly diskCacheHitWeight: number
  readonly blockSizeTokens: number | undefined
  readonly eventThreads: number
  readonly indexBytes: number
  readonly replayTimeoutMs: number
  readonly checkpointDirectory?: string | undefined
  readonly checkpointIntervalMs?: number
  /** Undefined: none is written. */
  readonly decisionLogFile?: string | undefined
  readonly decisionLogBytesMax?: number
  readonly decisionLogFilesMax?: number
  /** 0: requests are not kept. */
  readonly whatIfMinutes?: number
  readonly whatIfBytes?: number
  readonly whatIfCpuShare?: number
  readonly whatIfTimeoutMs?: number
  /** Undefined: there is none. */
  readonly accessLog?: string | undefined
  readonly accessLogSample?: number
  readonly audit: boolean
  readonly probeIntervalMs: number
  readonly probeTimeoutMs: number
  /** 0: engines are not asked for their own figures. */
  readonly engineMetricsIntervalMs?: number
  readonly tokenizers: readonly string[]
  readonly tokenizerThreads: number
  readonly promptCacheBytes: number
  readonly wordTableBytes: number
  readonly inlineBodyBytesMax: number
  readonly tokenizeCheckEvery: number
  /** By directory: tokenizers that are loaded already. */
  readonly loadedTokenizers: ReadonlyMap<string, LoadedTokenizer>
  readonly retries: number
  readonly requestTimeoutMs: number
  readonly silenceTimeoutMs: number
  readonly relayRoutes?: GatewayArgs['relayRoutes']
}
