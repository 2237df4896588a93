/** Reads what a request memory has kept, as a decision log. */

import type { DecisionLog, LoggedRequest } from '@homing/trace'
import { KNOWLEDGE, NONE, OUTCOMES, WORDS } from './request-memory.ts'
import type { WhatIfTask } from './types.ts'

/** In order of arrival. Blocks are numbered as they first appear; the partial last one of a prompt is nobody else's. */
export function readKept({ kept, sinceMs, workers, selection }: WhatIfTask): DecisionLog {
  const numbers = new BlockNumbers()
  const requests: LoggedRequest[] = []
  for (const { buffer, words: used } of kept.chunks) {
    const words = new Float64Array(buffer)
    const halves = new Int32Array(buffer)
    for (let at = 0; at < used; at += WORDS + words[at]!) {
      if (words[at + 1]! < sinceMs) continue
      requests.push(readRequest(words, halves, at, kept.texts, numbers))
    }
  }
  requests.sort((a, b) => a.timestampMs - b.timestampMs)
  const originMs = requests[0]?.timestampMs ?? 0
  return {
    requests: requests.map(request => ({ ...request, timestampMs: request.timestampMs - originMs })),
    workers,
    selections: [selection],
    fleetChanges: 0,
    droppedRequests: 0,
    cuts: [],
  }
}

function readRequest(
  words: Float64Array,
  halves: Int32Array,
  at: number,
  texts: readonly string[],
  numbers: BlockNumbers,
): LoggedRequest {
  const inputTokens = words[at + 2]!
  const blockTokens = words[at + 4]!
  const ids = new Float64Array(Math.ceil(inputTokens / blockTokens))
  const known = Math.min(words[at]!, ids.length)
  for (let block = 0; block < ids.length; block++) {
    const half = 2 * (at + WORDS + block)
    ids[block] = block < known ? numbers.of(halves[half]!, halves[half + 1]!) : numbers.fresh()
  }
  const worker = words[at + 6]!
  const attempts = words[at + 14]!
  return {
    timestampMs: words[at + 1]!,
    inputTokens,
    outputTokens: words[at + 3]!,
    blockTokens,
    hashIds: ids,
    sessionId: undefined,
    model: texts[words[at + 5]!]!,
    worker: worker === NONE ? undefined : texts[worker],
    policy: '',
    predictedTokens: words[at + 11]!,
    cachedTokens: figureOf(words[at + 10]!),
    routerMs: words[at + 7]!,
    firstTokenMs: figureOf(words[at + 8]!),
    totalMs: words[at + 9]!,
    outcome: OUTCOMES[words[at + 12]!]!,
    error: undefined,
    attempts: Math.max(0, attempts),
    wasTaken: attempts !== NONE,
    knowledge: KNOWLEDGE[words[at + 13]!]!,
  }
}

function figureOf(word: number): number | undefined {
  return word === NONE ? undefined : word
}

/** 53 bits of each hash: of ten million blocks two are taken for one with a probability of 0.6 %. */
class BlockNumbers {
  readonly #numbers = new Map<number, number>()
  #next = 0

  of(low: number, high: number): number {
    const key = (high & 0x1f_ffff) * 2 ** 32 + (low >>> 0)
    let number = this.#numbers.get(key)
    if (number === undefined) {
      number = this.#next++
      this.#numbers.set(key, number)
    }
    return number
  }

  fresh(): number {
    return this.#next++
  }
}
