/** Queue rules: what `--router-queue-threshold` and `--router-queue-policy` mean under the policy at hand. */

import type { BusyThresholds } from '@homing/load'
import type { PolicyFile, QueueOrder } from '@homing/queue'
import type { QueueRules } from '@homing/queue-actor'
import type { CustomSelection, PolicyName, RouterMode } from '@homing/selection'

/** Steps of an engine: what `auto` means for policies that do not learn. */
const THRESHOLD_OF_OTHERS = 2

interface PolicySettings {
  readonly routerMode: RouterMode
  readonly routerPolicy: PolicyName
  /** A selection of one's own, in place of the policy. */
  readonly customSelection?: CustomSelection | undefined
}

export interface QueueSettings extends PolicySettings {
  /** 'none', 'auto', or a number above 0. */
  readonly queueThreshold: string
  readonly queueOrder: 'auto' | QueueOrder
  readonly policyClasses?: PolicyFile | undefined
  readonly queueTimeoutMs: number
  readonly queueAgingMs: number
  readonly queueRequestsMax: number
  readonly queueTokensMax: number
  readonly queueBytesMax: number
  readonly tenantWeights?: ReadonlyMap<string, number> | undefined
  readonly tenantContentionMs?: number
  readonly activeDecodeBlocksThreshold?: number | undefined
  readonly activePrefillTokensThreshold?: number | undefined
  readonly activePrefillTokensThresholdFraction?: number | undefined
  /** HTTP status of requests that nobody has room for. */
  readonly overloadStatus?: number
}

export function busyThresholdsOf(args: QueueSettings): BusyThresholds {
  return {
    decodeBlocksFraction: args.activeDecodeBlocksThreshold,
    prefillTokens: args.activePrefillTokensThreshold,
    prefillFraction: args.activePrefillTokensThresholdFraction,
  }
}

/** The order of all requests that are in no class with one of its own. */
export function queueOrderOf(args: PolicySettings & Pick<QueueSettings, 'queueOrder'>): QueueOrder {
  if (args.queueOrder !== 'auto') return args.queueOrder
  return isAuto(args) ? 'response-ratio' : 'fcfs'
}

export function queueRulesOf(args: QueueSettings): QueueRules {
  const { queueThreshold, policyClasses } = args
  const own = isAuto(args) ? 'step' : THRESHOLD_OF_OTHERS
  return {
    threshold:
      queueThreshold === 'none' ? undefined : queueThreshold === 'auto' ? own : Number(queueThreshold),
    order: queueOrderOf(args),
    classes: policyClasses,
  }
}

function isAuto({ routerMode, routerPolicy, customSelection }: PolicySettings): boolean {
  return routerMode === 'kv' && routerPolicy === 'auto' && customSelection === undefined
}
