/**
 * Fleets and operating points by name.
 *
 *   F8      8 workers, one H100 each, Llama-3.1-8B      F64    64 of the same
 *   F8-70   8 workers, four H100 each, Llama-3.1-70B    F1000  1,000 of those of F8, 16 copies of the trace
 */

import type { ProfileName } from '@homing/engine'

export const FLEET_NAMES = ['F8', 'F8-70', 'F64', 'F1000'] as const
export type FleetName = (typeof FLEET_NAMES)[number]

export interface NamedFleet {
  readonly workers: number
  readonly profile: ProfileName
  readonly copies: number
}

export const FLEETS: Readonly<Record<FleetName, NamedFleet>> = {
  F8: { workers: 8, profile: 'h100-8b', copies: 1 },
  'F8-70': { workers: 8, profile: 'h100-70b-tp4', copies: 1 },
  F64: { workers: 64, profile: 'h100-8b', copies: 1 },
  F1000: { workers: 1000, profile: 'h100-8b', copies: 16 },
}

/** Speeds from light load to overload, by the kind of trace. */
export function operatingSpeeds(fleet: FleetName, workload: string, copies: number): readonly number[] {
  const isChat = /conversation/.test(workload)
  switch (fleet) {
    case 'F8':
      return isChat ? [1, 2, 3, 3.5, 4] : [1, 2, 3, 4]
    case 'F8-70':
      return [0.5, 1, 1.25]
    case 'F64':
      if (copies > 1) return [16, 24, 28].map(speed => speed / copies)
      return isChat ? [16, 24, 28] : [16, 20, 24]
    case 'F1000':
      return [24]
  }
}
