/** What is delivered of a placement whose worker was not called, or whose call was left before it counted. */

import type { Delivery } from '@homing/placement'

export const UNCALLED: Delivery = {
  outcome: 'aborted',
  status: undefined,
  promptTokens: undefined,
  completionTokens: undefined,
  cachedTokens: undefined,
  waitedMs: 0,
  timeToFirstByteMs: undefined,
  durationMs: 0,
  streamEvents: undefined,
  error: undefined,
}
