/**
 * Decision log files: what routers wrote (log-line.ts), whole and in order of arrival.
 *
 * Files of one log may be given in any order. Numbers of blocks and sessions are made unique across the lives
 * of a log. A last line that was cut is left out and reported; any other line that cannot be read is an
 * error.
 *
 * Memory: 8 bytes for each number of a block, LOG_BLOCKS_MAX of them at most.
 */

import {
  beginsAsDecisionLog,
  type LoggedRequest,
  type LoggedSelection,
  type LoggedWorker,
  type LogHeader,
  readLogLine,
} from './log-line.ts'
import { readLines, UnreadableTraceError } from './trace-file.ts'
import { MalformedTraceError } from './trace-line.ts'

export interface DecisionLog {
  /** In order of arrival; times from the start of the first life. */
  readonly requests: readonly LoggedRequest[]
  /**
   * Every worker that a header names, as the latest one names it; what that one does not know, as the one
   * before knew it.
   */
  readonly workers: readonly LoggedWorker[]
  /** How requests were placed: each way once, the one that was used last at the end. */
  readonly selections: readonly LoggedSelection[]
  /** Headers that name other workers than the one before, or other states of them. */
  readonly fleetChanges: number
  /** Requests that have no line, as far as the log says so. */
  readonly droppedRequests: number
  /** Files whose last line was cut, with the number of that line. */
  readonly cuts: readonly { readonly path: string; readonly line: number }[]
}

/** Most blocks of all prompts together: 1 GiB of numbers. */
export const LOG_BLOCKS_MAX = 2 ** 27

/** Whether a file is a decision log. Throws UnreadableTraceError. */
export async function isDecisionLog(path: string): Promise<boolean> {
  for await (const { text } of readLines(path, 'end')) {
    if (text.trim() !== '') return beginsAsDecisionLog(text)
  }
  return false
}

/** Throws MalformedTraceError and UnreadableTraceError. */
export async function readDecisionLog(paths: readonly string[]): Promise<DecisionLog> {
  const reader = new LogReader()
  for (const path of paths) await reader.read(path)
  return reader.log()
}

interface Life {
  readonly originMs: number
  /** Beyond all numbers of its lines. */
  end: number
  readonly requests: LoggedRequest[]
}

/** What a header says, and when, in Unix milliseconds. */
interface Since<T> {
  readonly atMs: number
  readonly value: T
}

class LogReader {
  readonly #lives = new Map<string, Life>()
  readonly #workers = new Map<string, Since<LoggedWorker>>()
  readonly #selections = new Map<string, Since<LoggedSelection>>()
  readonly #cuts: { readonly path: string; readonly line: number }[] = []
  #fleetChanges = 0
  #dropped = 0
  #blocks = 0

  async read(path: string): Promise<void> {
    let life: Life | undefined
    let workers: string | undefined
    for await (const { line, text, isComplete } of readLines(path, 'end')) {
      if (text.trim() === '') continue
      const read = readLogLine(text)
      if (typeof read === 'string') {
        if (isComplete) throw new MalformedTraceError(path, line, read)
        this.#cuts.push({ path, line })
        return
      }
      if (read.kind === 'header') {
        const named = JSON.stringify(read.header.workers)
        if (workers !== undefined && named !== workers) this.#fleetChanges++
        workers = named
        life = this.#header(read.header)
      } else if (life === undefined) {
        throw new MalformedTraceError(path, line, 'there is no header of a decision log before it')
      } else if (read.kind === 'loss') {
        this.#dropped += read.requests
      } else {
        this.#request(path, life, read.request)
      }
    }
  }

  log(): DecisionLog {
    const originMs = Math.min(...[...this.#lives.values()].map(life => life.originMs))
    const requests: LoggedRequest[] = []
    let base = 0
    for (const [name, life] of this.#lives) {
      for (const request of life.requests) {
        const hashIds = request.hashIds as Float64Array
        for (let i = 0; i < hashIds.length; i++) hashIds[i]! += base
        const { sessionId, timestampMs } = request
        requests.push({
          ...request,
          timestampMs: timestampMs + life.originMs - originMs,
          sessionId: sessionId === undefined ? undefined : `${name}/${sessionId}`,
        })
      }
      base += life.end
    }
    requests.sort((a, b) => a.timestampMs - b.timestampMs)
    return {
      requests,
      workers: [...this.#workers.values()].map(({ value }) => value),
      selections: [...this.#selections.values()].sort((a, b) => a.atMs - b.atMs).map(({ value }) => value),
      fleetChanges: this.#fleetChanges,
      droppedRequests: this.#dropped,
      cuts: this.#cuts,
    }
  }

  #header({ life: name, originMs, timestampMs, selection, workers }: LogHeader): Life {
    // Files come in any order.
    const atMs = originMs + timestampMs
    for (const worker of workers) {
      const known = this.#workers.get(worker.key)
      const value =
        known === undefined
          ? worker
          : known.atMs <= atMs
            ? laterWorker(known.value, worker)
            : laterWorker(worker, known.value)
      this.#workers.set(worker.key, { atMs: Math.max(atMs, known?.atMs ?? atMs), value })
    }
    const way = JSON.stringify(selection)
    const usedMs = Math.max(atMs, this.#selections.get(way)?.atMs ?? atMs)
    this.#selections.set(way, { atMs: usedMs, value: selection })
    const known = this.#lives.get(name)
    if (known !== undefined) return known
    const life = { originMs, end: 0, requests: [] }
    this.#lives.set(name, life)
    return life
  }

  #request(path: string, life: Life, request: LoggedRequest): void {
    this.#blocks += request.hashIds.length
    if (this.#blocks > LOG_BLOCKS_MAX) {
      const reason = `the prompts of the log have more than ${LOG_BLOCKS_MAX} blocks together: give fewer files`
      throw new UnreadableTraceError(path, reason)
    }
    const hashIds = Float64Array.from(request.hashIds)
    for (const number of hashIds) life.end = Math.max(life.end, number + 1)
    life.requests.push({ ...request, hashIds })
  }
}

/** A worker that is down is named without what only it could tell. */
function laterWorker(earlier: LoggedWorker, later: LoggedWorker): LoggedWorker {
  return {
    ...later,
    models: later.models.length > 0 ? later.models : earlier.models,
    blockTokens: later.blockTokens ?? earlier.blockTokens,
    kvBlocks: later.kvBlocks ?? earlier.kvBlocks,
  }
}
