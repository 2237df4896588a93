/** Arguments of the queue: its rules, and the bounds of what waits. */

import type { ActorRef } from '@homing/actor'
import type { RouterMessage } from '@homing/actors/router'
import type { TrackerMessage } from '@homing/actors/tracker'
import { type RouterSettings, readTenantWeights } from '@homing/config'
import type { PolicyFile, QueueRules, UnnamedTenants } from '@homing/queue'
import type { CustomSelection } from '@homing/selection'
import { type QueueRuleSettings, queueRulesOf } from './queue-rules.ts'

export interface QueueArgs {
  readonly router: ActorRef<RouterMessage>
  readonly tracker: ActorRef<TrackerMessage>
  readonly rules: QueueRules
  /** Bounds of what waits, in all models together. */
  readonly requestsMax: number
  readonly tokensMax: number
  readonly bytesMax: number
  /** Longest that a request may wait, in milliseconds. */
  readonly waitMsMax: number
  /** Requests that have waited this long go first, in milliseconds. */
  readonly agingMs: number
  /** Longest wait for the router, in milliseconds. */
  readonly askMsMax: number
  /** HTTP status of refusals; default: that of the error. */
  readonly overloadStatus?: number | undefined
  /** Shares of tenants; 1 for those that are not named. */
  readonly tenantWeights?: ReadonlyMap<string, number> | undefined
  /** What tenants have that are not in `tenantWeights`; default 'own'. */
  readonly unnamedTenants?: UnnamedTenants | undefined
  /** The rule for long prompts holds while another tenant was served within this time, in milliseconds. */
  readonly contentionMs?: number | undefined
}

export type QueueSettings = QueueRuleSettings &
  Pick<
    RouterSettings,
    | 'queueRequestsMax'
    | 'queueTokensMax'
    | 'queueBytesMax'
    | 'queueTimeoutMs'
    | 'queueAgingMs'
    | 'overloadStatus'
    | 'tenantContentionMs'
    | 'unnamedTenants'
  >

const ASK_MS_MAX = 10_000

/** `customSelection` and `policyClasses`: the loaded contents that the settings of these names refer to. */
export function queueArgsFromSettings(
  settings: QueueSettings,
  parts: {
    readonly router: ActorRef<RouterMessage>
    readonly tracker: ActorRef<TrackerMessage>
    readonly customSelection: CustomSelection | undefined
    readonly policyClasses: PolicyFile | undefined
  },
): QueueArgs {
  return {
    router: parts.router,
    tracker: parts.tracker,
    rules: queueRulesOf(settings, parts.customSelection, parts.policyClasses),
    requestsMax: settings.queueRequestsMax,
    tokensMax: settings.queueTokensMax,
    bytesMax: settings.queueBytesMax,
    waitMsMax: settings.queueTimeoutMs,
    agingMs: settings.queueAgingMs,
    askMsMax: ASK_MS_MAX,
    overloadStatus: settings.overloadStatus,
    tenantWeights: readTenantWeights(settings.tenantWeights),
    unnamedTenants: settings.unnamedTenants,
    contentionMs: settings.tenantContentionMs,
  }
}

/** Requests may wait under these rules. */
export function isQueueOn({ threshold, classes }: QueueRules): boolean {
  return threshold !== undefined || classes !== undefined
}
