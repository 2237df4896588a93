/**
 * Token lines: the outputs of a program as the lines of an answer (packages/protocol/src/token-requests.ts).
 *
 * Invariants
 *   I1  The last line has a finish reason, or says why the program failed; nothing follows it.
 *   I2  There are as many ids as were asked for, at most; then the program is stopped.
 *   I3  The program's generator is told when it is stopped: its `finally` blocks run.
 */

import { encodeTokenLine, type TokenOutput, type TokenRequest } from '@homing/protocol'
import type { GivenOutput } from './worker-options.ts'

export interface TokenCounts {
  /** Ids that were sent. */
  tokens: number
  finished: number
  failed: number
  /** Clients that left first. */
  cancelled: number
}

/** `first`: what the program gave already. `failed`: told what it threw. */
export async function* tokenLines(
  request: TokenRequest,
  outputs: AsyncIterator<GivenOutput>,
  first: IteratorResult<GivenOutput>,
  counts: TokenCounts,
  failed: (error: unknown) => void,
): AsyncGenerator<string> {
  const { maxTokens = Number.POSITIVE_INFINITY } = request.stopConditions
  let count = 0
  let isOver = false
  let ending: 'cancelled' | 'finished' | 'failed' = 'cancelled'
  try {
    for (let next = first; ; next = await outputs.next()) {
      const output = next.done === true ? undefined : outputOf(next.value)
      const line = lastAt(output, maxTokens - count) ?? { tokenIds: [], finishReason: 'stop' }
      const text = encodeTokenLine(line)
      count += line.tokenIds.length
      counts.tokens += line.tokenIds.length
      isOver = next.done === true
      if (line.finishReason !== undefined) ending = 'finished'
      yield text
      if (line.finishReason !== undefined) return
    }
  } catch (error) {
    ending = 'failed'
    failed(error)
    yield encodeTokenLine({ error: error instanceof Error ? error.message : String(error) })
  } finally {
    counts[ending]++
    // It may be waiting for something that never comes, and is not waited for.
    if (!isOver) outputs.return?.()?.then(undefined, failed)
  }
}

function outputOf(given: GivenOutput): TokenOutput {
  if (typeof given === 'number') return { tokenIds: [given] }
  if (Array.isArray(given)) return { tokenIds: given }
  const output = given as Exclude<GivenOutput, number | readonly number[]>
  if (Array.isArray(output?.tokenIds)) return output
  throw new TypeError(
    `an output is ${JSON.stringify(given)}: give a token id, a list of them, or { tokenIds }`,
  )
}

/** The last output if it has `left` ids or more. */
function lastAt(output: TokenOutput | undefined, left: number): TokenOutput | undefined {
  if (output === undefined || output.tokenIds.length < left || output.finishReason !== undefined) {
    const isLong = output !== undefined && output.tokenIds.length > left
    return isLong ? { ...output, tokenIds: output.tokenIds.slice(0, left), finishReason: 'length' } : output
  }
  return { ...output, tokenIds: output.tokenIds.slice(0, left), finishReason: 'length' }
}
