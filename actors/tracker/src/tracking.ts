/** What of a request counts as load, and what its blocks are called. */

import type { Random } from '@homing/base'
import type { RequestTracking, TrackingSettings } from '@homing/placement'

export const TRACK_ALL: TrackingSettings = Object.freeze({
  activeBlocks: true,
  prefillTokens: true,
  outputBlocks: false,
  assumesReuse: true,
})

const NO_HASHES = new Int32Array(0)
const BYTES_PER_HASH = 8

/** What counts of a request that has a say in it. */
export function trackingOf(
  settings: TrackingSettings,
  request: RequestTracking | undefined,
): TrackingSettings {
  if (request === undefined) return settings
  const { prefillTokens, assumesReuse } = request
  return {
    ...settings,
    prefillTokens: prefillTokens ?? settings.prefillTokens,
    assumesReuse: assumesReuse ?? settings.assumesReuse,
  }
}

/** The hashes that a prompt is booked with, and compared by with what is booked. */
export function trackedHashes(
  given: Int32Array,
  { activeBlocks, assumesReuse }: TrackingSettings,
  random: Random,
): Int32Array {
  if (!activeBlocks) return NO_HASHES
  if (assumesReuse || given.length === 0) return given
  // A first block that nobody else has makes all that follow one's own.
  const own = given.slice()
  const drawn = random.bytes(BYTES_PER_HASH)
  own.set(new Int32Array(drawn.buffer.slice(drawn.byteOffset, drawn.byteOffset + BYTES_PER_HASH)), 0)
  return own
}
