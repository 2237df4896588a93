/**
 * Gateways: one on main, beside router and tokenizer, or several on threads of their own, each with a near
 * tokenizer beside it. The thread of a pair is in one place here, and its pool in packages/homing.
 */

import type { ActorContext } from '@homing/actor'
import { gateway, gatewayArgsFromSettings } from '@homing/actors/gateway'
import { nearTokenizer, nearTokenizerArgsFromSettings } from '@homing/actors/tokenizer'
import { commonMemory } from '@homing/http'
import type { GuardianArgs } from './guardian-args.ts'
import type { GuardianMessage } from './messages.ts'
import type { Spawn } from './spawner.ts'

type GatewayParts = Omit<Parameters<typeof gatewayArgsFromSettings>[1], 'own'>

export function spawnGateways(
  context: ActorContext<GuardianMessage>,
  spawn: Spawn,
  { settings, inputs }: GuardianArgs,
  parts: GatewayParts,
) {
  const count = settings.gatewayThreads
  if (count === 1) return [spawn(gateway, 'gateway', gatewayArgsFromSettings(settings, parts))]
  const memory = commonMemory(count)
  const nearArgs = nearTokenizerArgsFromSettings(settings, { tokenizer: parts.tokenizer, count })
  return Array.from({ length: count }, (_, index) => {
    const thread = `gateways-${index}` as const
    const near = spawn(nearTokenizer, `tokenizer-${index}`, nearArgs, { thread })
    const own = {
      nearTokenizer: near,
      nearBodyBytesMax: settings.inlineBodyBytesMax,
      row: { memory, index },
      count,
      keeper: context.self,
      engineCertificates: inputs.engineCertificates,
    }
    return spawn(gateway, `gateway-${index}`, gatewayArgsFromSettings(settings, { ...parts, own }), {
      thread,
    })
  })
}
