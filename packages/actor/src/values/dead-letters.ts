/**
 * Reasons for dead letters: messages that no actor will handle. They are counted in observe/dead-letters.ts.
 */

/**
 * `dead`: no such actor; `stopped`: it waited when its actor stopped; `no arm`: no arm for its type;
 * `overflow`: its mailbox was full; `coalesced`: a newer one with its key took its place; `unserializable`:
 * it cannot travel to the thread of its actor; `shed`: the heap of that thread was nearly full; `unreadable`:
 * it came from another thread and could not be read; `malformed`: it is no object whose `type` is a string.
 */
export type DeadLetterReason = (typeof DEAD_LETTER_REASONS)[number]
export const DEAD_LETTER_REASONS = [
  'dead',
  'stopped',
  'overflow',
  'coalesced',
  'no arm',
  'unserializable',
  'shed',
  'unreadable',
  'malformed',
] as const

/** Dead letters, by reason. */
export type DeadLetterCounts = Record<DeadLetterReason, number>

export function noDeadLetters(): DeadLetterCounts {
  return Object.fromEntries(DEAD_LETTER_REASONS.map(reason => [reason, 0])) as DeadLetterCounts
}
