/**
 * Generators by name: traffic from a seed, for what trace files do not cover.
 *
 *   sessions     chats over shared system prompts; closed loop: the next turn waits for the answer
 *   coding       coding agents with long, growing contexts; closed loop
 *   groups       groups of questions behind shared system prompts, at a rate that grows in stages
 *   rag          documents in front of a question
 *   unique       nothing shared
 *   hot          one prefix takes most of the load for two minutes, then another one
 *   adversarial  very long chains, fan-out, bursts
 *   flood        a tenant who chats, and one who floods the fleet with long prompts
 *   tenants      tenants who all ask for the same amount
 *
 * Written `NAME` or `NAME?requests=5000&rate=4`. Everything is a function of the seed and the parameters.
 */

import { CodedError, seededRandom } from '@homing/base'
import type { TraceRequest } from '../trace-request.ts'
import { CODING_CALLS_MEAN, codingUsers } from './coding.ts'
import { asOpenLoop, multiTurn, type UserLoop } from './multi-turn.ts'
import {
  adversarialTraffic,
  type GroupsOptions,
  groupsRequests,
  groupsTraffic,
  hotTraffic,
  ragTraffic,
  uniqueTraffic,
} from './open-traffic.ts'
import { CHAT_TURNS_MEAN, chatUsers } from './sessions.ts'
import { floodTraffic, tenantsTraffic } from './tenants.ts'

export const GENERATOR_NAMES = [
  'sessions',
  'coding',
  'groups',
  'rag',
  'unique',
  'hot',
  'adversarial',
  'flood',
  'tenants',
] as const
export type GeneratorName = (typeof GENERATOR_NAMES)[number]

/** A generator with all of its parameters. */
export interface GeneratorSpec {
  readonly name: GeneratorName
  /** Requests in all. */
  readonly requests: number
  /** Requests per second in the mean, if answers took no time. */
  readonly perSecond: number
  /** Whether a turn waits for the answer before it. Open loops have fixed times, as traces have. */
  readonly loop: 'closed' | 'open'
  /** Of `groups`; 0 elsewhere. */
  readonly groups: number
  readonly questions: number
  readonly systemTokens: number
  /** Long prompts per second, of `flood`; undefined elsewhere. */
  readonly floodsPerSecond?: number
  /** Of `tenants`; undefined elsewhere. */
  readonly tenants?: number
}

/** A generator with this name or these parameters does not exist. */
export class BadGeneratorError extends CodedError {
  readonly code = 'HOMING_TRACE_BAD_GENERATOR'

  constructor(generator: string, reason: string) {
    super(`cannot generate ${JSON.stringify(generator)}: ${reason}`, { generator, reason })
  }
}

const REQUESTS = 10_000
const GROUPS: GroupsOptions = { groups: 150, questions: 5, systemTokens: 6000 }
/**
 * Eight H100 with an 8B model and a good policy reach their limit at about speed 3 to 4 with each of these.
 */
const PER_SECOND: Readonly<Record<GeneratorName, number>> = {
  sessions: 20,
  coding: 3,
  groups: 4,
  rag: 4,
  unique: 3,
  hot: 4,
  adversarial: 12,
  flood: 8,
  tenants: 200,
}
/** Nearly twice what eight H100 with an 8B model can take of them. */
const FLOODS_PER_SECOND = 4
const TENANTS = 10
const RANGES = {
  requests: { min: 1, max: 100_000_000 },
  rate: { min: 0.001, max: 100_000 },
  groups: { min: 1, max: 100_000 },
  questions: { min: 1, max: 100_000 },
  system: { min: 1, max: 1_000_000 },
  flood: { min: 0, max: 100_000 },
  tenants: { min: 1, max: 10_000 },
} as const

/** Reads `NAME?key=value&…`. Throws BadGeneratorError. */
export function parseGenerator(text: string): GeneratorSpec {
  const [name, query = ''] = text.split('?', 2) as [string, string?]
  const known = GENERATOR_NAMES.find(each => each === name)
  if (known === undefined) {
    throw new BadGeneratorError(
      text,
      `there is no ${JSON.stringify(name)}; use ${GENERATOR_NAMES.join(', ')}`,
    )
  }
  const isClosed = known === 'sessions' || known === 'coding'
  const allowed = [
    'requests',
    'rate',
    ...(isClosed ? ['loop'] : []),
    ...(known === 'groups' ? ['groups', 'questions', 'system'] : []),
    ...(known === 'flood' || known === 'tenants' ? [known] : []),
  ]
  const given = new URLSearchParams(query)
  for (const key of given.keys()) {
    if (!allowed.includes(key)) {
      throw new BadGeneratorError(
        text,
        `${name} has no parameter ${JSON.stringify(key)}; use ${allowed.join(', ')}`,
      )
    }
  }
  const number = (key: keyof typeof RANGES, preset: number): number => {
    const value = given.get(key)
    if (value === null) return preset
    const { min, max } = RANGES[key]
    const parsed = value === '' ? Number.NaN : Number(value)
    if (!(parsed >= min && parsed <= max) || (!isRate(key) && !Number.isInteger(parsed))) {
      throw new BadGeneratorError(
        text,
        `${key}=${value} is not a number within ${min} … ${max}${isRate(key) ? '' : ', without a fraction'}`,
      )
    }
    return parsed
  }
  const loop = given.get('loop') ?? (isClosed ? 'closed' : 'open')
  if (loop !== 'closed' && loop !== 'open') {
    throw new BadGeneratorError(text, `loop=${loop} is neither closed nor open`)
  }
  const hasGroups = known === 'groups'
  const groups = {
    groups: number('groups', GROUPS.groups),
    questions: number('questions', GROUPS.questions),
    systemTokens: number('system', GROUPS.systemTokens),
  }
  return {
    name: known,
    requests: number('requests', hasGroups ? groupsRequests(groups) : REQUESTS),
    perSecond: number('rate', PER_SECOND[known]),
    loop,
    ...(hasGroups ? groups : { groups: 0, questions: 0, systemTokens: 0 }),
    ...(known === 'flood' && { floodsPerSecond: number('flood', FLOODS_PER_SECOND) }),
    ...(known === 'tenants' && { tenants: number('tenants', TENANTS) }),
  }
}

function isRate(key: keyof typeof RANGES): boolean {
  return key === 'rate' || key === 'flood'
}

/** The traffic with fixed times; it begins anew with every iteration. */
export function generatedRequests(spec: GeneratorSpec, seed: number): Iterable<TraceRequest> {
  return { [Symbol.iterator]: () => take(traffic(spec, seed), spec.requests) }
}

/**
 * The traffic of a closed-loop generator, for one run. `users` multiplies the users in the same span of time:
 * that many times the requests, that many times as often. Think times stay: people do not think faster on a
 * busy day.
 */
export function generatedLoop(spec: GeneratorSpec, seed: number, users = 1): UserLoop {
  const random = seededRandom(seed)
  const isChat = spec.name === 'sessions'
  return multiTurn({
    name: spec.name,
    random,
    requests: Math.max(1, Math.round(spec.requests * users)),
    usersPerSecond: (spec.perSecond * users) / (isChat ? CHAT_TURNS_MEAN : CODING_CALLS_MEAN),
    draw: isChat ? chatUsers(random) : codingUsers(),
  })
}

function traffic(spec: GeneratorSpec, seed: number): Iterable<TraceRequest> {
  const random = seededRandom(seed)
  switch (spec.name) {
    case 'sessions':
    case 'coding':
      return asOpenLoop(generatedLoop(spec, seed))
    case 'groups':
      return groupsTraffic(random, spec.perSecond, spec)
    case 'rag':
      return ragTraffic(random, spec.perSecond)
    case 'unique':
      return uniqueTraffic(random, spec.perSecond)
    case 'hot':
      return hotTraffic(random, spec.perSecond)
    case 'adversarial':
      return adversarialTraffic(random, spec.perSecond)
    case 'flood':
      return floodTraffic(random, spec.perSecond, spec.floodsPerSecond ?? FLOODS_PER_SECOND)
    case 'tenants':
      return tenantsTraffic(random, spec.perSecond, spec.tenants ?? TENANTS)
  }
}

function* take(requests: Iterable<TraceRequest>, count: number): Generator<TraceRequest> {
  let taken = 0
  for (const request of requests) {
    if (taken++ === count) return
    yield request
  }
}
