/** Arguments of the console: limits, and the actors that own what it shows. */

import type { ActorRef } from '@homing/actor'
import type { DecisionLogMessage } from '@homing/actors/decision-log'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { IndexerMessage } from '@homing/actors/indexer'
import type { QueueMessage } from '@homing/actors/queue'
import type { ReplicaBridgeMessage } from '@homing/actors/replica-bridge'
import type { RouterMessage } from '@homing/actors/router'
import type { TokenizerMessage } from '@homing/actors/tokenizer'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { WhatIfMessage } from '@homing/actors/what-if'
import type { RouterSettings } from '@homing/config'
import type { AdminKey, TlsArgs } from '@homing/http'
import type { ModelLabels } from '@homing/metrics'

/** A file that was read and parsed before the console began. */
export interface AdminKeysArgs {
  readonly file: string
  readonly keys: readonly AdminKey[]
}

export interface ConsoleArgs {
  readonly host: string
  /** Names under which browsers may call it, beside those of this machine. */
  readonly hostNames?: readonly string[]
  /** 0 picks a free port; undefined: gateways pass requests on. */
  readonly adminPort: number | undefined
  /** A port with metrics and health alone; 0 picks a free one; default: there is none. */
  readonly metricsPort?: number | undefined
  /** Certificate and key of the ports of its own; default: plain HTTP. */
  readonly tls?: TlsArgs | undefined
  /** A client with this key may change workers and thresholds; undefined: only this machine may. */
  readonly adminKey?: string | undefined
  /** Clients with roles, which all operator routes then ask for; undefined: there are none. */
  readonly adminKeys?: AdminKeysArgs | undefined
  /** Who may see the live page. local: this machine or clients with the key; open: all; off: none. */
  readonly page: 'local' | 'open' | 'off'
  /** Tabs of it that may be open at one time. */
  readonly pageTabsMax: number
  /** Operator requests that may be open at one time, on the port of its own; default: that of ViewRoom. */
  readonly openOperatorRequestsMax?: number
  readonly bodyBytesMax: number
  /** Longest wait for the next bytes of a request body, in milliseconds. */
  readonly bodySilenceMsMax: number
  /** Longest time that a connection without a request is kept, in milliseconds; default: the transport's. */
  readonly keepAliveMsMax?: number
  /** Longest time that an answer may wait for a client that takes none of it, in milliseconds. */
  readonly clientStallMsMax: number
  /** Longest wait for router, directory, indexers, tracker, tokenizer and gateway, in milliseconds. */
  readonly askMsMax: number
  /** Longest wait for a dump of a worker key, and for what reads a body, in milliseconds. */
  readonly readMsMax: number
  /** Models with labels of their own in the metrics, and for how long after their last request. */
  readonly modelLabels: ModelLabels
  /** Metrics have the names of Dynamo, too; default false. */
  readonly dynamoNames?: boolean
  /** False: the gateway serves no API; default true. */
  readonly hasFrontend?: boolean
  /** Routes of engines that are relayed, for people. */
  readonly relayed: readonly string[]
  readonly router: ActorRef<RouterMessage>
  readonly queue: ActorRef<QueueMessage>
  readonly directory: ActorRef<DirectoryMessage>
  readonly tracker: ActorRef<TrackerMessage>
  readonly tokenizer: ActorRef<TokenizerMessage>
  readonly indexers: readonly ActorRef<IndexerMessage>[]
  /** Undefined: there are no other routers. */
  readonly replicaBridge?: ActorRef<ReplicaBridgeMessage> | undefined
  /** Undefined: none is written. */
  readonly decisionLog?: ActorRef<DecisionLogMessage> | undefined
  /** Undefined: requests are not kept. */
  readonly whatIf?: ActorRef<WhatIfMessage> | undefined
}

export type ConsoleSettings = Pick<
  RouterSettings,
  | 'host'
  | 'hostNames'
  | 'adminPort'
  | 'metricsPort'
  | 'page'
  | 'pageTabsMax'
  | 'openOperatorRequestsMax'
  | 'bodyBytesMax'
  | 'bodyTimeoutMs'
  | 'clientStallTimeoutMs'
  | 'keepAliveTimeoutMs'
  | 'metricsModelsMax'
  | 'metricsModelIdleMs'
  | 'metricsDynamoNames'
  | 'frontend'
>

const ASK_MS_MAX = 10_000
const READ_MS_MAX = 60_000

/** `adminKey`: the key itself, once its file is read. */
export function consoleArgsFromSettings(
  settings: ConsoleSettings,
  parts: Pick<
    ConsoleArgs,
    | 'tls'
    | 'adminKey'
    | 'adminKeys'
    | 'relayed'
    | 'router'
    | 'queue'
    | 'directory'
    | 'tracker'
    | 'tokenizer'
    | 'indexers'
    | 'replicaBridge'
    | 'decisionLog'
    | 'whatIf'
  >,
): ConsoleArgs {
  return {
    ...parts,
    host: settings.host,
    hostNames: settings.hostNames,
    adminPort: settings.adminPort,
    metricsPort: settings.metricsPort,
    page: settings.page,
    pageTabsMax: settings.pageTabsMax,
    openOperatorRequestsMax: settings.openOperatorRequestsMax,
    bodyBytesMax: settings.bodyBytesMax,
    bodySilenceMsMax: settings.bodyTimeoutMs,
    keepAliveMsMax: settings.keepAliveTimeoutMs,
    clientStallMsMax: settings.clientStallTimeoutMs,
    askMsMax: ASK_MS_MAX,
    readMsMax: READ_MS_MAX,
    dynamoNames: settings.metricsDynamoNames,
    hasFrontend: settings.frontend,
    modelLabels: { modelsMax: settings.metricsModelsMax, modelIdleMs: settings.metricsModelIdleMs },
  }
}
