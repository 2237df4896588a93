/**
 * Multi-turn traffic as a closed loop: the next turn of a user starts a think time after the answer to the
 * one before has ended.
 *
 * New users arrive at random (Poisson). All requests of a user are drawn when the user arrives, in order of
 * arrival, so they do not depend on how fast users are served; only their times do. Only users in the middle
 * of a conversation are in memory.
 */

import type { Random } from '@homing/base'
import type { TraceRequest } from '../trace-request.ts'
import { poissonGapMs } from './draws.ts'
import { GrowingPrompt, PrefixIds } from './growing-prompt.ts'

/** Requests that depend on answers. Good for one run: it remembers the progress of every user. */
export interface UserLoop {
  readonly requestsExpected: number
  /** The first request of every user, in order of arrival. */
  first(): Iterable<TraceRequest>
  /**
   * The answer to `request` ended at `atMs`: what the same user asks next, and when. Undefined: that was all.
   */
  onComplete(request: TraceRequest, atMs: number): TraceRequest | undefined
}

/** One turn as drawn. */
export interface PlannedTurn {
  /** Tokens that the prompt adds to the previous turn's prompt, not counting that turn's answer. */
  readonly addedTokens: number
  readonly outputTokens: number
  /** From the end of the answer before to this turn; not used for the first turn. */
  readonly thinkMs: number
}

/** Everything that one user will do. */
export interface PlannedUser {
  /** The shared beginning of the prompt. */
  readonly opening: { readonly name: string; readonly tokens: number }
  readonly turns: readonly PlannedTurn[]
  /** False: answers are not part of later prompts, or are counted in `addedTokens` already. */
  readonly keepsAnswers: boolean
}

export interface MultiTurnOptions {
  readonly name: string
  readonly random: Random
  /** No further user arrives once the users so far have this many turns together. */
  readonly requests: number
  readonly usersPerSecond: number
  readonly draw: (random: Random) => PlannedUser
}

interface LiveUser {
  readonly prompt: GrowingPrompt
  readonly plan: PlannedUser
  /** The turn that is being answered. */
  turn: number
}

export function multiTurn(options: MultiTurnOptions): UserLoop {
  const { name, random, requests, usersPerSecond, draw } = options
  const ids = new PrefixIds()
  const live = new Map<string, LiveUser>()

  const requestOf = (sessionId: string, user: LiveUser, timestampMs: number): TraceRequest => {
    const { outputTokens, addedTokens } = user.plan.turns[user.turn]!
    user.prompt.add(addedTokens)
    return {
      timestampMs,
      inputTokens: user.prompt.tokens,
      outputTokens,
      hashIds: user.prompt.hashIds(),
      sessionId,
    }
  }

  function* first(): Generator<TraceRequest> {
    let nowMs = 0
    let planned = 0
    for (let number = 0; planned < requests; number++) {
      nowMs += poissonGapMs(random, usersPerSecond)
      const drawn = draw(random)
      const plan = { ...drawn, turns: drawn.turns.slice(0, requests - planned) }
      planned += plan.turns.length
      const prompt = new GrowingPrompt(ids)
      prompt.add(plan.opening.tokens, plan.opening.name)
      const user = { prompt, plan, turn: 0 }
      const sessionId = `${name}-${number}`
      if (plan.turns.length > 1) live.set(sessionId, user)
      yield requestOf(sessionId, user, nowMs)
    }
  }

  return {
    requestsExpected: requests,
    first,
    onComplete(request, atMs) {
      const sessionId = request.sessionId ?? ''
      const user = live.get(sessionId)
      if (user === undefined) return undefined
      if (user.plan.keepsAnswers) user.prompt.add(user.plan.turns[user.turn]!.outputTokens)
      user.turn++
      const last = user.turn === user.plan.turns.length - 1
      if (last) live.delete(sessionId)
      return requestOf(sessionId, user, atMs + user.plan.turns[user.turn]!.thinkMs)
    },
  }
}

/** An answer that takes its time: so long to the first token and between tokens. For `asOpenLoop`. */
const FIRST_TOKEN_MS = 500
const TOKEN_MS = 20

/**
 * The same traffic with fixed times, as if every answer took half a second and 20 ms a token: it does not
 * slow down when answers are late. In order of time; only users in the middle of a conversation are in
 * memory.
 */
export function* asOpenLoop(loop: UserLoop): Generator<TraceRequest> {
  const due: TraceRequest[] = []
  const take = (request: TraceRequest): TraceRequest => {
    const next = loop.onComplete(
      request,
      request.timestampMs + FIRST_TOKEN_MS + TOKEN_MS * request.outputTokens,
    )
    if (next !== undefined) insertByTime(due, next)
    return request
  }
  for (const arrival of loop.first()) {
    while (due.length > 0 && due.at(-1)!.timestampMs <= arrival.timestampMs) yield take(due.pop()!)
    yield take(arrival)
  }
  while (due.length > 0) yield take(due.pop()!)
}

/** `due` is sorted by time, the earliest last. */
function insertByTime(due: TraceRequest[], request: TraceRequest): void {
  let low = 0
  let high = due.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (due[middle]!.timestampMs > request.timestampMs) low = middle + 1
    else high = middle
  }
  due.splice(low, 0, request)
}
