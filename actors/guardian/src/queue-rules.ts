/** Queue rules: what `--router-queue-threshold` and `--router-queue-policy` mean under the policy at hand. */

import type { BusyThresholds } from '@homing/load'
import { orderOf, type PolicyFile, type QueueOrder, type QueueRules, thresholdOf } from '@homing/queue'
import type { CustomSelection, PolicyName, RouterMode } from '@homing/selection'

interface PolicySettings {
  readonly routerMode: RouterMode
  readonly routerPolicy: PolicyName
  /** A selection of one's own, in place of the policy. */
  readonly customSelection?: CustomSelection | undefined
}

export interface QueueSettings extends PolicySettings {
  /** 'none', 'auto', or a number above 0; undefined: 'auto' under policy auto and where tenants have weights, else 'none'. */
  readonly queueThreshold: string | undefined
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
  return orderOf(args.queueOrder, isAuto(args))
}

export function queueRulesOf(args: QueueSettings): QueueRules {
  const { queueThreshold: given, policyClasses, tenantWeights } = args
  const hasWeights = tenantWeights !== undefined && tenantWeights.size > 0
  const isWord = given === undefined || given === 'none' || given === 'auto'
  return {
    threshold: thresholdOf(isWord ? given : Number(given), isAuto(args), hasWeights),
    order: queueOrderOf(args),
    classes: policyClasses,
  }
}

function isAuto({ routerMode, routerPolicy, customSelection }: PolicySettings): boolean {
  return routerMode === 'kv' && routerPolicy === 'auto' && customSelection === undefined
}
