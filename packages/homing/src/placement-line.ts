/**
 * The line of the banner that says how the router places requests, and why not by `auto` when no other rule
 * was set.
 */

import { linearBy, type RouterSettings, type SettingSource } from '@homing/config'

const MEANS = {
  auto: 'what a placement costs in ms, learned from each worker',
  linear: 'blocks to prefill, weighed, plus blocks in use',
  product: 'tokens to prefill times requests',
  'est-ttft': 'estimated ms to the first token',
  threshold: 'most of the prompt cached, unless the fleet is out of balance',
} as const satisfies Readonly<Record<RouterSettings['routerPolicy'], string>>

/** `sources`: where each setting came from. */
export function placementLine(
  settings: RouterSettings,
  sources: Readonly<Record<keyof RouterSettings, SettingSource>>,
): string {
  const { routerMode, routerPolicy, selectionModule } = settings
  if (routerMode !== 'kv') return `placement: ${routerMode}, which does not look at caches`
  if (selectionModule !== undefined) return `placement: by the selection of ${selectionModule}`
  const isImplied = routerPolicy !== 'auto' && sources.routerPolicy.kind === 'default'
  const cause = linearBy({ settings, isGiven: key => sources[key].kind !== 'default' })
  const why = isImplied && cause !== undefined ? `, since ${sources[cause].name} is given` : ''
  return `placement: policy ${routerPolicy}${why}: ${MEANS[routerPolicy]}`
}
