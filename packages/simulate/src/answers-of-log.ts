/**
 * Answers of a log: which blocks the answers of its requests have filled, as far as later prompts show it.
 *
 * An engine caches the answers that it writes. The next turn of a conversation begins with the previous
 * prompt and its answer. So the blocks after that prompt, over the length of the answer, are the blocks of
 * the answer. If the client or the chat template has changed the answer, these blocks are never found. The
 * log shows which is the case: it has the blocks that engines found of such prompts that came back to their
 * worker.
 */

import type { LoggedRequest } from '@homing/trace'

/** An answer, and the prompt that shows it. */
interface Shown {
  readonly request: LoggedRequest
  readonly next: LoggedRequest
  /** Full blocks of its prompt, and of its prompt and answer. */
  readonly from: number
  readonly to: number
}

/**
 * For each request whose answer was cached, the ids of the blocks after its prompt; `requests` in order of
 * arrival.
 */
export function answersOf(requests: readonly LoggedRequest[]): ReadonlyMap<LoggedRequest, readonly number[]> {
  const shown = shownAnswers(requests)
  let found = 0
  for (const { request, next, from, to } of shown) {
    const { cachedTokens, worker, blockTokens } = next
    if (cachedTokens === undefined || worker !== request.worker) continue
    if (cachedTokens >= to * blockTokens) found++
    else if (cachedTokens <= from * blockTokens) found--
  }
  const answers = new Map<LoggedRequest, readonly number[]>()
  if (found <= 0) return answers
  for (const { request, next, from, to } of shown)
    answers.set(
      request,
      Array.from({ length: to - from }, (_, i) => next.hashIds[from + i]!),
    )
  return answers
}

function shownAnswers(requests: readonly LoggedRequest[]): readonly Shown[] {
  /** By the last full block of its prompt. */
  const waiting = new Map<number, LoggedRequest>()
  const shown: Shown[] = []
  for (const next of requests) {
    const { blockTokens, hashIds } = next
    const whole = wholeBlocks(next)
    for (let from = whole - 1; from > 0; from--) {
      const request = waiting.get(hashIds[from - 1]!)
      if (request === undefined || request.timestampMs + request.totalMs > next.timestampMs) continue
      // The last token of an answer is not computed any more.
      const filled = Math.floor((request.inputTokens + request.outputTokens - 1) / blockTokens)
      const to = Math.min(whole, filled)
      if (to <= from) break
      waiting.delete(hashIds[from - 1]!)
      shown.push({ request, next, from, to })
      break
    }
    if (whole > 0) waiting.set(hashIds[whole - 1]!, next)
  }
  return shown
}

function wholeBlocks({ inputTokens, blockTokens }: LoggedRequest): number {
  return Math.floor(inputTokens / blockTokens)
}
