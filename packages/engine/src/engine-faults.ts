/**
 * Faults of a simulated engine, as `POST /admin/faults` takes them. What a body does not name stays as it is.
 *
 *   events.drop N           the next N event batches are numbered, can be replayed, but are not published
 *   events.forget           with drop: they cannot be replayed either
 *   events.duplicate N      the next N batches are published twice
 *   events.delay N, delayMs the next N batches come delayMs late; later ones overtake them
 *   events.replayLoseEvery  a replay leaves out every N-th message silently (0: none)
 *   events.replayRepliesMax a replay loses what is behind so many replies (0: nothing)
 *   events.replaySilent     replay requests get no answer
 *   events.unknownRemovals  the next N batches with removals name blocks that no router knows
 *   events.group, …         the manners of event-manners.ts: group and removalGroup ("form", "same", "none"
 *                           or a number), slidingGroup, repeatsStores, namesKinds, namesSalts
 *   events.rank             the dp rank meant; without it, all of them
 *   hang                    'off', 'generation' (no step, no answer to /v1) or 'all' (every route but /admin)
 *   slowFactor              stretches every step; 1 is normal
 *   slowMs                  real milliseconds added to every step; 0 is normal
 *   sources                 what /kv_event_sources tells: 'own', 'first' (every rank names the sockets of
 *                           rank 0, as replicas behind one balancer do) or 'none' (404, as vLLM before it had
 *                           the route)
 *   refuse N                the next N requests to /v1 get 503; −1: all of them, and /health too
 *   die {tokens, requests}  the next `requests` requests lose their connection after `tokens` tokens;
 *                           0 tokens: before the first byte of the answer
 *   error {tokens, requests} likewise, but the stream ends with an error event (before any token: HTTP 500)
 */

import { RefusedRequest } from './completion-request.ts'
import { type EventFaults, NO_EVENT_FAULTS } from './event-publisher.ts'

export type HangScope = 'off' | 'generation' | 'all'
export type ToldSources = 'own' | 'first' | 'none'

/** Counts down over requests. */
export interface RequestFault {
  readonly tokens: number
  readonly requests: number
}

export interface EngineFaults {
  readonly hang: HangScope
  readonly slowFactor: number
  readonly slowMs: number
  readonly sources: ToldSources
  readonly refuse: number
  readonly die: RequestFault
  readonly error: RequestFault
}

export const NO_ENGINE_FAULTS: EngineFaults = {
  hang: 'off',
  slowFactor: 1,
  slowMs: 0,
  sources: 'own',
  refuse: 0,
  die: { tokens: 0, requests: 0 },
  error: { tokens: 0, requests: 0 },
}

/** What a body of /admin/faults asks for. */
export interface FaultRequest {
  readonly engine: EngineFaults
  /** Undefined: the body says nothing about events. */
  readonly events: Partial<EventFaults> | undefined
  /** The rank that `events` is about; undefined is all. */
  readonly rank: number | undefined
}

type Body = Readonly<Record<string, unknown>>

const COUNTS = [
  'drop',
  'duplicate',
  'delay',
  'delayMs',
  'replayLoseEvery',
  'replayRepliesMax',
  'unknownRemovals',
] as const
const FLAGS = ['forget', 'replaySilent', 'repeatsStores', 'namesKinds', 'namesSalts'] as const
const GROUP_MAX = 1023

/** Throws RefusedRequest for an unknown name or a value out of range, before anything changes. */
export function readFaultRequest(body: Body, current: EngineFaults): FaultRequest {
  const names = ['events', ...Object.keys(NO_ENGINE_FAULTS)]
  refuseUnknown(body, names, 'fault')
  const hang = body['hang'] ?? current.hang
  if (hang !== 'off' && hang !== 'generation' && hang !== 'all') {
    throw fault(`hang is ${JSON.stringify(hang)}, use "off", "generation" or "all"`)
  }
  const sources = body['sources'] ?? current.sources
  if (sources !== 'own' && sources !== 'first' && sources !== 'none') {
    throw fault(`sources is ${JSON.stringify(sources)}, use "own", "first" or "none"`)
  }
  const engine: EngineFaults = {
    hang,
    slowFactor: numberOf(body, 'slowFactor', 0.001, 1_000_000) ?? current.slowFactor,
    slowMs: numberOf(body, 'slowMs', 0, 600_000) ?? current.slowMs,
    sources,
    refuse: numberOf(body, 'refuse', -1, 1_000_000) ?? current.refuse,
    die: requestFault(body, 'die') ?? current.die,
    error: requestFault(body, 'error') ?? current.error,
  }
  const events = body['events']
  if (events === undefined) return { engine, events: undefined, rank: undefined }
  if (!isObject(events)) throw fault('events must be an object')
  refuseUnknown(events, ['rank', ...Object.keys(NO_EVENT_FAULTS)], 'event fault')
  const wanted: { -readonly [K in keyof EventFaults]?: EventFaults[K] } = {}
  for (const name of COUNTS) {
    const value = numberOf(events, name, 0, 1_000_000)
    if (value !== undefined) wanted[name] = value
  }
  for (const name of FLAGS) {
    const value = events[name]
    if (value === undefined) continue
    if (typeof value !== 'boolean') throw fault(`${name} must be true or false`)
    wanted[name] = value
  }
  const slidingGroup = numberOf(events, 'slidingGroup', -1, GROUP_MAX)
  if (slidingGroup !== undefined) wanted.slidingGroup = slidingGroup
  const group = groupOf(events, 'group', 'form')
  if (group !== undefined) wanted.group = group
  const removalGroup = groupOf(events, 'removalGroup', 'same')
  if (removalGroup !== undefined) wanted.removalGroup = removalGroup
  return { engine, events: wanted, rank: numberOf(events, 'rank', 0, 63) }
}

/** The number of a group, 'none', or the word that leaves it as it is elsewhere. */
function groupOf<W extends string>(body: Body, name: string, word: W): W | 'none' | number | undefined {
  const value = body[name]
  if (value === word || value === 'none') return value as W | 'none'
  if (typeof value === 'string')
    throw fault(`${name} is ${JSON.stringify(value)}, use "${word}", "none" or a number`)
  return numberOf(body, name, 0, GROUP_MAX)
}

function requestFault(body: Body, name: 'die' | 'error'): RequestFault | undefined {
  const value = body[name]
  if (value === undefined) return undefined
  if (!isObject(value)) throw fault(`${name} must be an object {tokens, requests}`)
  refuseUnknown(value, ['tokens', 'requests'], name)
  return {
    tokens: numberOf(value, 'tokens', 0, 10_000_000) ?? 0,
    requests: numberOf(value, 'requests', 0, 1_000_000) ?? 1,
  }
}

function numberOf(body: Body, name: string, min: number, max: number): number | undefined {
  const value = body[name]
  if (value === undefined) return undefined
  if (typeof value !== 'number' || !(value >= min && value <= max)) {
    throw fault(`${name} is ${JSON.stringify(value)}, use ${min} to ${max}`)
  }
  return value
}

function refuseUnknown(body: Body, names: readonly string[], what: string): void {
  for (const name of Object.keys(body)) {
    if (!names.includes(name)) throw fault(`unknown ${what} ${name}: use ${names.join(', ')}`)
  }
}

function isObject(value: unknown): value is Body {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function fault(message: string): RefusedRequest {
  return new RefusedRequest(400, 'BadRequestError', message)
}
