/**
 * Model type: what a worker says of itself when it registers, in the words of Dynamo's `ModelType`; two of
 * them are the part of a request that it takes (docs/disaggregation.md).
 *
 *   Prefill              role=prefill
 *   Decode               role=decode
 *   Chat, Completions    no role: the routes that its engine answers, which every router finds by itself
 *
 * Several are joined by `|`, in any case of letters.
 */

import { openText } from '@homing/base'

const ROLES: ReadonlyMap<string, string | undefined> = new Map([
  ['prefill', 'prefill'],
  ['decode', 'decode'],
  ['chat', undefined],
  ['completions', undefined],
])
const WANTED = "Prefill, Decode, Chat or Completions, several with '|' between them, and one role at most"

/** The URL with the role in its query, or what is wrong with it, and what would be right. */
export function withRole(
  url: string,
  modelType: unknown,
): { readonly url: string } | { readonly fault: string; readonly wanted: string } {
  if (typeof modelType !== 'string') return { fault: 'its model_type is no text', wanted: WANTED }
  const faulty = (wanted: string) => ({
    fault: `its model_type is ${JSON.stringify(openText(modelType))}: use ${wanted}`,
    wanted,
  })
  const names = modelType.split('|').map(name => name.trim().toLowerCase())
  if (!names.every(name => ROLES.has(name))) return faulty(WANTED)
  const roles = new Set(names.flatMap(name => ROLES.get(name) ?? []))
  if (roles.size > 1) return faulty(WANTED)
  const [role] = roles
  if (role === undefined) return { url }
  const parsed = new URL(url)
  const given = parsed.searchParams.get('role')
  if (given === role) return { url }
  if (given !== null) return faulty(`that of role=${openText(given)} in its url, or none`)
  parsed.searchParams.set('role', role)
  return { url: parsed.href }
}
