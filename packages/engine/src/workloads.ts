/**
 * Workloads: prompts as token ids, from a seed or from a trace.
 *
 *   sessions   multi-turn chats over a few shared system prompts; the next turn holds the answer of the one
 *              before
 *   trace      requests of @homing/trace, one id per 512 tokens
 *
 * Equal ids give equal tokens: token t of id h comes from a mix of (h, t), so prompts share exactly the
 * prefixes that the trace says they share, at any engine block size that divides 512.
 *
 * Everything is a function of the seed. Sizes are drawn log-normal around a median, prompts by Zipf's law.
 */

import { type Random, seededRandom } from '@homing/base'
import { TRACE_BLOCK_TOKENS, type TraceRequest } from '@homing/trace'

export interface TokenRange {
  /** Lowest token id that may occur. */
  readonly first: number
  /** Number of token ids, ≥ 1. */
  readonly count: number
}

/** Ids that every byte-level vocabulary has as plain text: letters and digits are among them. */
export const DEFAULT_TOKEN_RANGE: TokenRange = { first: 32, count: 95 }

/** The token ids of a trace request; cut at its input length. */
export function traceTokens(request: TraceRequest, range: TokenRange = DEFAULT_TOKEN_RANGE): Int32Array {
  const tokens = new Int32Array(request.inputTokens)
  for (let position = 0; position < tokens.length; position++) {
    const id = request.hashIds[Math.floor(position / TRACE_BLOCK_TOKENS)]!
    tokens[position] = range.first + (mix(id, position % TRACE_BLOCK_TOKENS) % range.count)
  }
  return tokens
}

export interface SessionOptions {
  readonly seed: number
  readonly sessions: number
  /** Distinct system prompts; default 50. */
  readonly systemPrompts?: number
  /** Shortest and longest system prompt in tokens; default 1,000 and 8,000. */
  readonly systemTokensMin?: number
  readonly systemTokensMax?: number
  /** Median tokens of the first turn; default 600. */
  readonly firstTurnTokens?: number
  /** Median tokens of each further turn, the answer not counted; default 80. */
  readonly turnTokens?: number
  /** Mean number of turns, geometric; default 6. */
  readonly turnsMean?: number
  /** Median output tokens; default 250. */
  readonly outputTokens?: number
  /** Median think time in milliseconds; default 20,000. */
  readonly thinkMs?: number
  readonly range?: TokenRange
}

export interface SessionTurn {
  /** Tokens that the user adds in this turn. */
  readonly tokens: Int32Array
  readonly outputTokens: number
  /** Pause between the end of the previous answer (or the start of the session) and this turn. */
  readonly thinkMs: number
}

/**
 * A closed-loop chat: the prompt of a turn is system, then every earlier turn and its answer, then this turn.
 */
export interface Session {
  readonly id: string
  readonly systemPrompt: Int32Array
  readonly turns: readonly SessionTurn[]
}

/** Makes sessions one at a time; equal options give equal sessions. */
export function* sessions(options: SessionOptions): Generator<Session> {
  const random = seededRandom(options.seed)
  const range = options.range ?? DEFAULT_TOKEN_RANGE
  const systemMin = options.systemTokensMin ?? 1000
  const systemMax = options.systemTokensMax ?? 8000
  const systems = Array.from({ length: options.systemPrompts ?? 50 }, () =>
    randomTokens(random, systemMin + random.below(systemMax - systemMin + 1), range),
  )
  const popularity = zipf(systems.length, 1)
  const turnsMean = options.turnsMean ?? 6
  for (let session = 0; session < options.sessions; session++) {
    const turns: SessionTurn[] = []
    do {
      const median = turns.length === 0 ? (options.firstTurnTokens ?? 600) : (options.turnTokens ?? 80)
      turns.push({
        tokens: randomTokens(random, logNormal(random, median, 0.6), range),
        outputTokens: logNormal(random, options.outputTokens ?? 250, 0.7),
        thinkMs: logNormal(random, options.thinkMs ?? 20_000, 0.8),
      })
    } while (random.next() >= 1 / turnsMean && turns.length < 100)
    yield {
      id: `session-${options.seed}-${session}`,
      systemPrompt: systems[popularity(random.next())]!,
      turns,
    }
  }
}

/** The prompt of turn `turnIndex`, given the answers to all turns before it. */
export function sessionPrompt(
  session: Session,
  turnIndex: number,
  answers: readonly ArrayLike<number>[],
): Int32Array {
  const parts: ArrayLike<number>[] = [session.systemPrompt]
  for (let i = 0; i <= turnIndex; i++) {
    parts.push(session.turns[i]!.tokens)
    if (i < turnIndex) parts.push(answers[i]!)
  }
  const prompt = new Int32Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    prompt.set(part, at)
    at += part.length
  }
  return prompt
}

export interface TraceOptions {
  readonly seed: number
  readonly requests: number
  /** Requests per second; default 3.4, as in the Mooncake conversation trace. */
  readonly requestsPerSecond?: number
}

/**
 * A made-up trace, in the spirit of a production chat trace: one block that all prompts share, chats that
 * come back with a grown prompt after a log-normal pause, long-tailed lengths, and the answer numbered as
 * part of the next prompt. Ids are numbered in order of first appearance; the last block is partial.
 */
export function makeTrace(options: TraceOptions): TraceRequest[] {
  const random = seededRandom(options.seed)
  const gapMs = 1000 / (options.requestsPerSecond ?? 3.4)
  /** Chats that come back: when, and with which blocks and tokens so far. */
  const pending: { atMs: number; path: number[]; tokens: number }[] = []
  const children = new Map<string, number>()
  const requests: TraceRequest[] = []
  let nowMs = 0
  let unique = 0
  const idOf = (parent: number, key: string): number => {
    const name = `${parent}/${key}`
    let id = children.get(name)
    if (id === undefined) {
      id = children.size
      children.set(name, id)
    }
    return id
  }
  while (requests.length < options.requests) {
    nowMs += -Math.log(1 - random.next()) * gapMs
    const due = pending.findIndex(chat => chat.atMs <= nowMs)
    const chat = due < 0 ? undefined : pending.splice(due, 1)[0]
    const inputTokens =
      chat === undefined ? logNormal(random, 2400, 1.1) : chat.tokens + logNormal(random, 60, 0.8)
    const path = chat === undefined ? [] : chat.path.slice(0, Math.floor(chat.tokens / TRACE_BLOCK_TOKENS))
    while (path.length < Math.ceil(inputTokens / TRACE_BLOCK_TOKENS)) {
      const key = path.length === 0 ? 'shared' : `own ${unique++}`
      path.push(idOf(path.at(-1) ?? -1, key))
    }
    const outputTokens = logNormal(random, 180, 0.8)
    requests.push({ timestampMs: Math.round(nowMs), inputTokens, outputTokens, hashIds: path })
    if (random.next() < 0.45 && pending.length < 10_000) {
      pending.push({
        atMs: nowMs + logNormal(random, 40_000, 0.9),
        path,
        tokens: inputTokens + outputTokens,
      })
    }
  }
  return requests
}

function randomTokens(random: Random, count: number, range: TokenRange): Int32Array {
  const tokens = new Int32Array(count)
  for (let i = 0; i < count; i++) tokens[i] = range.first + random.below(range.count)
  return tokens
}

/** An integer ≥ 1, log-normal around `median`. */
function logNormal(random: Random, median: number, sigma: number): number {
  const normal = Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next())
  return Math.max(1, Math.round(median * Math.exp(sigma * normal)))
}

/** Maps uniform [0, 1) to ranks 0 … count − 1 with weights 1 / (rank + 1)^exponent. */
function zipf(count: number, exponent: number): (uniform: number) => number {
  const sums: number[] = []
  let total = 0
  for (let rank = 0; rank < count; rank++) {
    total += (rank + 1) ** -exponent
    sums.push(total)
  }
  return uniform => {
    const at = sums.findIndex(sum => uniform * total < sum)
    return at < 0 ? count - 1 : at
  }
}

/** 32 bits of a mix of a 53-bit id and a position. */
function mix(id: number, position: number): number {
  let word =
    Math.imul((id | 0) ^ 0x9e3779b1, 0x85ebca6b) ^ Math.imul(Math.floor(id / 2 ** 32) + 1, 0xc2b2ae35)
  word = Math.imul(word ^ (word >>> 15) ^ Math.imul(position + 1, 0x27d4eb2f), 0x2c1b3c6d)
  word = Math.imul(word ^ (word >>> 12), 0x297a2d39)
  return (word ^ (word >>> 15)) >>> 0
}
