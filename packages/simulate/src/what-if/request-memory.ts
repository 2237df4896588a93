/**
 * Request memory: the requests of the last minutes, packed into memory that another thread can read without a
 * copy.
 *
 *   keep ─▶ last chunk ──full, or begun `ageMsMax` / 2 ago──▶ a new one
 *           first chunk ──all of it older than `ageMsMax`, or too many bytes──▶ dropped
 *
 *   a request   WORDS words of 8 bytes, then one for each full block of its prompt: the two halves of its
 *               sequence hash
 *
 * Invariants
 *   I1  A written word is never written again: a thread that has a chunk may read its words, up to the count
 *       it was given, at any time.
 *   I2  Chunks take `bytesMax` at most. A request that needs more is not kept, and counted.
 *   I3  Names of models and workers belong to a chunk and go with it.
 *   I4  No request is kept for longer than 1.5 × `ageMsMax`, provided that `look` is called.
 *
 * Cost. A request takes some words and a copy of its hashes; there is nothing to collect.
 */

import { KNOWLEDGE, OUTCOMES } from '@homing/trace'
import type { KeptRequest, KeptRequests } from './types.ts'

export interface RequestMemoryOptions {
  /** Of all chunks; ≥ one of CHUNK_BYTES. */
  readonly bytesMax: number
  readonly ageMsMax: number
}

export interface RequestMemoryStatus {
  readonly requests: number
  readonly bytes: number
  /** Not kept: there is no room for so long a prompt. */
  readonly refused: number
  /** Arrival of the first that is kept, Unix milliseconds; undefined: there is none. */
  readonly oldestMs: number | undefined
}

export const CHUNK_BYTES = 256 * 1024
const WORD_BYTES = 8
/** Of a request, before its blocks. */
export const WORDS = 15
/** Of its words, the one with its arrival. */
const ARRIVED = 1

/** In place of a figure that is not known. */
export const NONE = -1

interface Chunk {
  readonly words: Float64Array
  readonly halves: Int32Array
  used: number
  requests: number
  /** Names of models and workers, and their numbers. */
  readonly texts: Map<string, number>
  readonly firstMs: number
  lastMs: number
}

export class RequestMemory {
  readonly #options: RequestMemoryOptions
  readonly #chunks: Chunk[] = []
  #bytes = 0
  #requests = 0
  #refused = 0

  constructor(options: RequestMemoryOptions) {
    this.#options = options
  }

  get status(): RequestMemoryStatus {
    return {
      requests: this.#requests,
      bytes: this.#bytes,
      refused: this.#refused,
      oldestMs: this.#chunks[0]?.words[ARRIVED],
    }
  }

  /** `nowMs`: of a clock that never goes back. */
  keep(request: KeptRequest, nowMs: number): void {
    const blocks = Math.floor(request.sequenceHashes.length / 2)
    const chunk = this.#chunkFor(WORDS + blocks, nowMs)
    if (chunk === undefined) {
      this.#refused++
      return
    }
    const { words, halves, used } = chunk
    words[used] = blocks
    words[used + ARRIVED] = request.arrivedAtMs
    words[used + 2] = request.inputTokens
    words[used + 3] = request.outputTokens
    words[used + 4] = request.blockTokens
    words[used + 5] = numberOf(chunk, request.model)
    words[used + 6] = numberOf(chunk, request.worker)
    words[used + 7] = request.routerMs
    words[used + 8] = request.firstTokenMs ?? NONE
    words[used + 9] = request.totalMs
    words[used + 10] = request.cachedTokens ?? NONE
    words[used + 11] = request.predictedTokens
    words[used + 12] = OUTCOMES.indexOf(request.outcome)
    words[used + 13] = KNOWLEDGE.indexOf(request.knowledge)
    words[used + 14] = request.attempts
    halves.set(request.sequenceHashes.subarray(0, 2 * blocks), 2 * (used + WORDS))
    chunk.used += WORDS + blocks
    chunk.requests++
    chunk.lastMs = nowMs
    this.#requests++
  }

  /** Forgets requests that are too old. */
  look(nowMs: number): void {
    while (this.#chunks.length > 0 && nowMs - this.#chunks[0]!.lastMs > this.#options.ageMsMax)
      this.#dropFirst()
  }

  /** All requests kept now, without later ones. */
  get kept(): KeptRequests {
    return {
      chunks: this.#chunks.map(({ words, used, texts }) => ({
        buffer: words.buffer as SharedArrayBuffer,
        words: used,
        texts: [...texts.keys()],
      })),
    }
  }

  #chunkFor(words: number, nowMs: number): Chunk | undefined {
    const last = this.#chunks.at(-1)
    const isYoung = last !== undefined && nowMs - last.firstMs <= this.#options.ageMsMax / 2
    if (isYoung && last.used + words <= last.words.length) return last
    const bytes = Math.max(CHUNK_BYTES, words * WORD_BYTES)
    if (bytes > this.#options.bytesMax) return undefined
    while (this.#bytes + bytes > this.#options.bytesMax) this.#dropFirst()
    const buffer = new SharedArrayBuffer(bytes)
    const chunk: Chunk = {
      words: new Float64Array(buffer),
      halves: new Int32Array(buffer),
      used: 0,
      requests: 0,
      texts: new Map(),
      firstMs: nowMs,
      lastMs: nowMs,
    }
    this.#chunks.push(chunk)
    this.#bytes += bytes
    return chunk
  }

  #dropFirst(): void {
    const { words, requests } = this.#chunks.shift()!
    this.#bytes -= words.byteLength
    this.#requests -= requests
  }
}

function numberOf({ texts }: Chunk, text: string): number {
  const number = texts.get(text) ?? texts.size
  texts.set(text, number)
  return number
}
