/** Tracking: which parts of a request count as load, and the hashes of its blocks. */

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

/** The settings, with the overrides of the request. */
export function trackingOf(
  settings: TrackingSettings,
  request: RequestTracking | undefined,
): TrackingSettings {
  if (request === undefined) return settings
  const { prefillTokens, assumesReuse, activeBlocks } = request
  return {
    ...settings,
    activeBlocks: activeBlocks ?? settings.activeBlocks,
    prefillTokens: prefillTokens ?? settings.prefillTokens,
    assumesReuse: assumesReuse ?? settings.assumesReuse,
  }
}

/** The hashes under which a prompt is booked and compared with the booked ones. */
export function trackedHashes(
  given: Int32Array,
  { activeBlocks, assumesReuse }: TrackingSettings,
  random: Random,
): Int32Array {
  if (!activeBlocks) return NO_HASHES
  if (assumesReuse || given.length === 0) return given
  // With a random first hash, no other request shares this prompt's blocks.
  const own = given.slice()
  const drawn = random.bytes(BYTES_PER_HASH)
  own.set(new Int32Array(drawn.buffer.slice(drawn.byteOffset, drawn.byteOffset + BYTES_PER_HASH)), 0)
  return own
}
