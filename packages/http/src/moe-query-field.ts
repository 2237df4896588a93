/** The field `moe_query` of a body, as a router takes it: anything else than its members is refused. */

import { openText } from '@homing/base'
import type { MoeQueryHint } from '@homing/openai'
import type { BodyFields } from './body-fields.ts'

const MEMBERS = ['layer_id', 'expert_ids', 'expert_group', 'fallback_to_unlabeled']
const EXPERT_IDS_MAX = 4096
const U32_MAX = 0xffff_ffff

/** `name`: where it is in the body. Undefined: it is not there. */
export function readMoeQuery(fields: BodyFields, name: string, value: unknown): MoeQueryHint | undefined {
  if (value === undefined || value === null) return undefined
  if (typeof value !== 'object' || Array.isArray(value))
    return fields.mistyped(`${name} is ${JSON.stringify(value)}; it must be an object`)
  const query = value as Readonly<Record<string, unknown>>
  for (const key of Object.keys(query))
    if (!MEMBERS.includes(key))
      fields.refuse(`${name} has no member ${openText(key)}; known: ${MEMBERS.join(', ')}`)
  const u32 = (member: string, given: unknown): number => {
    if (typeof given === 'number' && Number.isInteger(given) && given >= 0 && given <= U32_MAX) return given
    return fields.mistyped(
      `${name}.${member} is ${JSON.stringify(given ?? null)}; it must be a whole number from 0 to ${U32_MAX}`,
    )
  }
  const { layer_id: layer, expert_ids: ids = [], expert_group: group = undefined } = query
  const { fallback_to_unlabeled: fallback = true } = query
  if (!Array.isArray(ids) || ids.length > EXPERT_IDS_MAX)
    return fields.mistyped(`${name}.expert_ids must be a list of at most ${EXPERT_IDS_MAX} whole numbers`)
  if (typeof fallback !== 'boolean')
    return fields.mistyped(
      `${name}.fallback_to_unlabeled is ${JSON.stringify(fallback)}; it must be true or false`,
    )
  return {
    layerId: u32('layer_id', layer),
    expertIds: ids.map((id: unknown, i) => u32(`expert_ids[${i}]`, id)),
    expertGroup: group === undefined || group === null ? undefined : u32('expert_group', group),
    fallbackToUnlabeled: fallback,
  }
}
