/** Traces of requests: files in the form of Mooncake, and generated sessions where there is no file. */

import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { seededRandom } from '@homing/base'

/** Tokens of one id of a trace. An id stands for its block and all before it. */
export const TRACE_BLOCK_TOKENS = 512

const ARRIVAL_BIN_MS = 3000
const COPY_SHIFT_S = 0.37
const SYSTEM_PROMPTS = 50
const SESSIONS_AT_ONCE = 40

export interface TraceRequest {
  readonly timeS: number
  readonly inputTokens: number
  readonly ids: readonly number[]
}

export interface Trace {
  readonly requests: readonly TraceRequest[]
  /** Of the file; 'generated' where there is none. */
  readonly sha256: string
}

/**
 * The file of this name: `given`, in HOMING_TRACES, or beside the repository; undefined when it is nowhere.
 */
export function findTrace(name: string, given: string): string | undefined {
  if (given !== '') return given
  return [process.env['HOMING_TRACES'], fileURLToPath(new URL('../../../shared/traces', import.meta.url))]
    .filter(directory => directory !== undefined)
    .map(directory => `${directory}/${name}`)
    .find(path => existsSync(path))
}

/**
 * One JSON object a line, gzip or plain. With `isBinned`, those that share a bin of 3 s are spread over it.
 */
export function readTrace(path: string, isBinned: boolean): Trace {
  const bytes = readFileSync(path)
  const requests = (path.endsWith('.gz') ? gunzipSync(bytes) : bytes)
    .toString('utf8')
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as { timestamp: number; input_length: number; hash_ids: number[] })
    .map(line => ({ timeS: line.timestamp, inputTokens: line.input_length, ids: line.hash_ids }))
  for (let start = 0; start < requests.length; ) {
    const timeMs = requests[start]!.timeS
    let end = start
    while (end < requests.length && requests[end]!.timeS === timeMs) end++
    const n = isBinned ? end - start : 1
    for (let i = start; i < end; i++) {
      const shiftMs = isBinned ? (ARRIVAL_BIN_MS * (i - start)) / n : 0
      requests[i]!.timeS = (timeMs + shiftMs) / 1000
    }
    start = end
  }
  return { requests, sha256: createHash('sha256').update(bytes).digest('hex') }
}

/** Copy d of a request, and when it arrives. */
export interface Arrival {
  readonly timeS: number
  readonly request: TraceRequest
  /** Added to each of its ids. */
  readonly idOffset: number
}

/** Copies with trees of their own, by time; those of the same time keep the order of copies. */
export function copiesOf({ requests }: Trace, copies: number): Arrival[] {
  const ids = idsIn(requests)
  const arrivals: Arrival[] = []
  for (let d = 0; d < copies; d++) {
    for (const request of requests) {
      arrivals.push({ timeS: request.timeS + COPY_SHIFT_S * d, request, idOffset: d * ids })
    }
  }
  return arrivals.sort((a, b) => a.timeS - b.timeS)
}

/** 1 more than the highest id. */
export function idsIn(requests: readonly TraceRequest[]): number {
  let highest = 0
  for (const { ids } of requests) for (const id of ids) if (id > highest) highest = id
  return highest + 1
}

/** Sessions of several turns that share system prompts. */
export function generateSessions(requestCount: number, seed: number): Trace {
  const random = seededRandom(seed)
  const next = () => random.next()
  const requests: TraceRequest[] = []
  let fresh = 1
  const systems = Array.from({ length: SYSTEM_PROMPTS }, () =>
    Array.from({ length: 2 + Math.floor(next() * 14) }, () => fresh++),
  )
  const sessions: { ids: number[]; turns: number }[] = []
  for (let i = 0; i < requestCount; i++) {
    let session = sessions[Math.floor(next() * sessions.length)]
    if (session === undefined || session.turns === 0 || sessions.length < SESSIONS_AT_ONCE) {
      const system = systems[Math.floor(SYSTEM_PROMPTS ** next()) - 1]! // about Zipf(1)
      session = { ids: [...system], turns: 1 + Math.floor(-6 * Math.log(1 - next())) }
      if (sessions.length < SESSIONS_AT_ONCE) sessions.push(session)
      else sessions[Math.floor(next() * sessions.length)] = session
    }
    session.turns--
    const added = 1 + Math.floor(-3 * Math.log(1 - next()))
    for (let k = 0; k < added; k++) session.ids.push(fresh++)
    const ids = [...session.ids]
    requests.push({ timeS: i * 0.3, inputTokens: ids.length * TRACE_BLOCK_TOKENS, ids })
  }
  return { requests, sha256: 'generated' }
}
