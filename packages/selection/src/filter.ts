/**
 * Which worker slots may serve a request at all, decided before anything is scored.
 *
 * Order: pinned slots must be in the allowed set; then allowed, pinned and not excluded make a slot
 * compatible; then overload. A pinned request is never sent elsewhere because its worker is busy.
 *
 * Source: Dynamo's worker filtering (pin and allow-list before taints before overload).
 */

import type { Constraints, Eligibility } from './types.ts'

/**
 * Writes the eligible ones of the first `count` slots into `target`, in their order, and says how many
 * they are and, when there are none, why. `target` has room for `count`; it may be `workerSlots` itself.
 */
export function filterEligible(
  workerSlots: ArrayLike<number>,
  count: number,
  constraints: Constraints,
  target: Int32Array,
): { readonly eligibility: Eligibility; readonly count: number } {
  const { pinned, allowed, isExcluded, isOverloaded } = constraints
  if (pinned !== undefined && allowed !== undefined && !intersects(pinned, allowed)) {
    return { eligibility: 'pin_not_allowed', count: 0 }
  }
  let compatible = 0
  let eligible = 0
  for (let i = 0; i < count; i++) {
    const slot = workerSlots[i]!
    if (allowed !== undefined && !allowed.has(slot)) continue
    if (pinned !== undefined && !pinned.has(slot)) continue
    if (isExcluded?.(slot) === true) continue
    compatible++
    if (isOverloaded?.(slot) === true) continue
    target[eligible++] = slot
  }
  if (eligible > 0) return { eligibility: 'eligible', count: eligible }
  if (compatible === 0) return { eligibility: 'no_worker', count: 0 }
  return { eligibility: pinned === undefined ? 'all_overloaded' : 'pin_overloaded', count: 0 }
}

function intersects(some: ReadonlySet<number>, others: ReadonlySet<number>): boolean {
  for (const slot of some) if (others.has(slot)) return true
  return false
}
