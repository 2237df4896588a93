/** Reads what a request memory has kept, as a decision log. */

import { type DecisionLog, KNOWLEDGE, type LoggedRequest, OUTCOMES } from '@homing/trace'
import { NONE, WORDS } from './request-memory.ts'
import type { KeptChunk, WhatIfTask } from './types.ts'

/**
 * What one question reads at most, in blocks: a block takes up to 100 bytes on the way, a request as much as
 * 20 of them. The heap of a thread must never be full: V8 then ends the whole process, not only the thread.
 */
const BLOCKS_MAX = 4_000_000
const BLOCKS_OF_A_REQUEST = 20

export interface ReadLog {
  readonly log: DecisionLog
  /** The first ones, for which there was no room within BLOCKS_MAX. */
  readonly leftOut: number
}

/**
 * In order of arrival. Blocks are numbered by first appearance; the partial last block of a prompt is never
 * shared.
 */
export function readKept({ kept, sinceMs, workers, selection }: WhatIfTask): ReadLog {
  const places = kept.chunks.flatMap(chunk => placesIn(chunk, sinceMs))
  places.sort((a, b) => a.arrivedAtMs - b.arrivedAtMs)
  const leftOut = tooManyOf(places)
  const numbers = new BlockNumbers()
  const originMs = places[leftOut]?.arrivedAtMs ?? 0
  const requests = places
    .slice(leftOut)
    .map(({ words, halves, texts, at }) => readRequest(words, halves, at, texts, numbers, originMs))
  const log = { requests, workers, selections: [selection], fleetChanges: 0, droppedRequests: 0, cuts: [] }
  return { log, leftOut }
}

/** Where a request lies. */
interface Place {
  readonly words: Float64Array
  readonly halves: Int32Array
  readonly texts: readonly string[]
  readonly at: number
  readonly arrivedAtMs: number
}

function placesIn({ buffer, words: used, texts }: KeptChunk, sinceMs: number): Place[] {
  const words = new Float64Array(buffer)
  const halves = new Int32Array(buffer)
  const places: Place[] = []
  for (let at = 0; at < used; at += WORDS + words[at]!) {
    const arrivedAtMs = words[at + 1]!
    if (arrivedAtMs >= sinceMs) places.push({ words, halves, texts, at, arrivedAtMs })
  }
  return places
}

/** How many of the first ones to leave out, so that the others fit in BLOCKS_MAX. */
function tooManyOf(places: readonly Place[]): number {
  let blocks = 0
  for (let i = places.length - 1; i >= 0; i--) {
    const { words, at } = places[i]!
    blocks += BLOCKS_OF_A_REQUEST + blocksOf(words, at)
    if (blocks > BLOCKS_MAX) return i + 1
  }
  return 0
}

/** Of the prompt, the partial one included. */
function blocksOf(words: Float64Array, at: number): number {
  return Math.ceil(words[at + 2]! / words[at + 4]!)
}

function readRequest(
  words: Float64Array,
  halves: Int32Array,
  at: number,
  texts: readonly string[],
  numbers: BlockNumbers,
  originMs: number,
): LoggedRequest {
  const inputTokens = words[at + 2]!
  const blockTokens = words[at + 4]!
  const ids = new Float64Array(blocksOf(words, at))
  const known = Math.min(words[at]!, ids.length)
  for (let block = 0; block < ids.length; block++) {
    const half = 2 * (at + WORDS + block)
    ids[block] = block < known ? numbers.of(halves[half]!, halves[half + 1]!) : numbers.fresh()
  }
  return {
    timestampMs: words[at + 1]! - originMs,
    inputTokens,
    outputTokens: words[at + 3]!,
    blockTokens,
    hashIds: ids,
    sessionId: undefined,
    model: texts[words[at + 5]!]!,
    worker: texts[words[at + 6]!]!,
    policy: '',
    predictedTokens: words[at + 11]!,
    cachedTokens: figureOf(words[at + 10]!),
    routerMs: words[at + 7]!,
    firstTokenMs: figureOf(words[at + 8]!),
    totalMs: words[at + 9]!,
    outcome: OUTCOMES[words[at + 12]!]!,
    error: undefined,
    attempts: words[at + 14]!,
    wasTaken: true,
    knowledge: KNOWLEDGE[words[at + 13]!]!,
  }
}

function figureOf(word: number): number | undefined {
  return word === NONE ? undefined : word
}

/** 53 bits of each hash: among ten million blocks, two get the same number with a probability of 0.6 %. */
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
