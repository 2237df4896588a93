/** A chat that an engine and this program both tokenize, to see whether they write prompts alike. */

/** One turn, since some templates take no other chat to begin with. */
export const COMPARED_CHAT = [
  { role: 'user', content: 'What is the capital of France? Answer in one word.' },
] as const

/** Position of the first token that differs, or where one of them ends; undefined: both are the same. */
export function firstDifference(ours: ArrayLike<number>, theirs: ArrayLike<number>): number | undefined {
  const length = Math.max(ours.length, theirs.length)
  for (let i = 0; i < length; i++) if (ours[i] !== theirs[i]) return i
  return undefined
}
