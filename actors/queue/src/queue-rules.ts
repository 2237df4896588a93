/** Queue rules: resolves `--router-queue-threshold` and `--router-queue-policy` for the policy in use. */

import type { RouterSettings } from '@homing/config'
import { orderOf, type PolicyFile, type QueueOrder, type QueueRules, thresholdOf } from '@homing/queue'
import type { CustomSelection } from '@homing/selection'

type PolicySettings = Pick<RouterSettings, 'routerMode' | 'routerPolicy'>

/** `queueThreshold` undefined: 'auto' under policy auto or if tenants have weights, else 'none'. */
export type QueueRuleSettings = PolicySettings &
  Pick<RouterSettings, 'queueThreshold' | 'queueOrder' | 'tenantWeights'>

/** The order of requests whose class has no own order. `custom`: the selection that replaces the policy. */
export function queueOrderOf(
  settings: PolicySettings & Pick<RouterSettings, 'queueOrder'>,
  custom: CustomSelection | undefined,
): QueueOrder {
  return orderOf(settings.queueOrder, isAuto(settings, custom))
}

export function queueRulesOf(
  settings: QueueRuleSettings,
  custom: CustomSelection | undefined,
  classes: PolicyFile | undefined,
): QueueRules {
  const { queueThreshold: given, tenantWeights } = settings
  const isWord = given === undefined || given === 'none' || given === 'auto'
  return {
    threshold: thresholdOf(
      isWord ? given : Number(given),
      isAuto(settings, custom),
      tenantWeights.length > 0,
    ),
    order: queueOrderOf(settings, custom),
    classes,
  }
}

function isAuto({ routerMode, routerPolicy }: PolicySettings, custom: CustomSelection | undefined): boolean {
  return routerMode === 'kv' && routerPolicy === 'auto' && custom === undefined
}
