/**
 * Lies of engines and clients, drawn by a seed.
 *
 * A lie is a false number, or a failure, of an engine that computes as fast and caches as well as the others;
 * or a false word of a client about a prompt that engines serve like any other. Each kind stands for a number
 * that a router reads: usage, times, failures, facts, metrics, KV events, and what clients say.
 */

import type { Random } from '@homing/base'

/** What an engine says of one answer, before it lies. */
export interface Usage {
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly completionTokens: number
}

/**
 * How an engine that lies in everything differs from one that does not. A member that is not given is true.
 */
export interface EngineLies {
  readonly usage?: (truth: Usage, random: Random) => Usage
  /** When it sends its first token: ms after it was asked, of `trueMs`; `endMs`: the end of the answer. */
  readonly firstTokenMs?: (trueMs: number, endMs: number, random: Random) => number
  /** Share of the requests that it fails at once, and with what. */
  readonly failures?: { readonly share: number; readonly status: 429 | 500 | 503 }
  readonly kvTokens?: number
  readonly maxModelTokens?: number
  readonly stepTokens?: number
  /** Of its KV cache, that is in use. */
  readonly kvUsage?: number
  /**
   * `hides` tells of no block; `claims` tells of all that others store; `keeps` does not tell of removals.
   */
  readonly events?: 'hides' | 'claims' | 'keeps'
}

/** Names and makers of the lies of engines, each with its draws. */
const ENGINE_LIES: Readonly<Record<string, (random: Random) => EngineLies>> = {
  'completion tokens': random => {
    const tokens = oneOf(random, [0, 1, 4_294_967_295, -5, 0.5, 20_000])
    return { usage: truth => ({ ...truth, completionTokens: tokens }) }
  },
  'some completion tokens': random => {
    const times = 10 ** (2 * random.next() - 1)
    return {
      usage: truth => ({ ...truth, completionTokens: Math.ceil(times * truth.completionTokens) }),
    }
  },
  'cached tokens': random => {
    const share = oneOf(random, [0, 1, 1.5, -1, 0.3])
    return { usage: truth => ({ ...truth, cachedTokens: Math.round(share * truth.promptTokens) }) }
  },
  'random cached tokens': () => ({
    usage: (truth, draws) => ({ ...truth, cachedTokens: draws.below(truth.promptTokens + 1) }),
  }),
  'prompt tokens': random => {
    const tokens = oneOf(random, [1, 0, 4_294_967_295])
    return { usage: truth => ({ ...truth, promptTokens: tokens }) }
  },
  'some prompt tokens': random => {
    const times = 10 ** (2 * random.next() - 1)
    return { usage: truth => ({ ...truth, promptTokens: Math.ceil(times * truth.promptTokens) }) }
  },
  'first token at once': () => ({ firstTokenMs: () => 1 }),
  'first token late': random => {
    const share = random.next()
    return { firstTokenMs: (trueMs, endMs) => trueMs + share * (endMs - trueMs) }
  },
  'first token at random': () => ({ firstTokenMs: (_, endMs, draws) => draws.next() * endMs }),
  failures: random => ({
    failures: { share: oneOf(random, [0.1, 0.5, 1]), status: oneOf(random, [429, 500, 503] as const) },
  }),
  'KV blocks': random => ({ kvTokens: oneOf(random, [512, 16_384, 1e12]) }),
  max_model_len: random => ({ maxModelTokens: oneOf(random, [1, 4096, 1e12]) }),
  'step tokens': random => ({ stepTokens: oneOf(random, [1, 64, 1e9]) }),
  'KV usage': random => ({ kvUsage: oneOf(random, [0, 1]) }),
  'hidden events': () => ({ events: 'hides' }),
  'claimed events': () => ({ events: 'claims' }),
  'kept events': () => ({ events: 'keeps' }),
}

/** What a client does that is not honest. */
export interface ClientLies {
  /** Share of the requests that are theirs. */
  readonly share: number
  /** Its requests are such that every engine refuses them at once with 400. */
  readonly isRefused: boolean
  /** Says of each how many tokens its answer may have; undefined: it says nothing. */
  readonly outputTokensMax: number | undefined
  /**
   * `another`: says in `token_data` that its prompt is another client's; `short`: that it is one token. With
   * --trust-token-data; otherwise the prompt is read from its body.
   */
  readonly claims: 'another' | 'short' | undefined
}

const CLIENT_LIES: Readonly<Record<string, (random: Random) => Partial<ClientLies>>> = {
  'bad requests': () => ({ isRefused: true }),
  max_tokens: () => ({ outputTokensMax: 4_294_967_295 }),
  'token_data of another': () => ({ claims: 'another' }),
  'short token_data': () => ({ claims: 'short' }),
}

export const LIE_NAMES = [...Object.keys(ENGINE_LIES), ...Object.keys(CLIENT_LIES)]

export interface Lies {
  /** By worker. */
  readonly engines: ReadonlyMap<number, EngineLies>
  readonly client: ClientLies | undefined
  /** What they are, for people. */
  readonly names: readonly string[]
}

export const NO_LIES: Lies = { engines: new Map(), client: undefined, names: [] }

/** Each lie, for each liar, with this chance. */
const LIE_CHANCE = 0.3

/**
 * Draws the lies of a seed: at most a quarter of the engines lie, at least one. `only`: keeps the lies of
 * these names, which are drawn as they would be among all.
 */
export function drawLies(random: Random, workers: number, only?: readonly string[]): Lies {
  const engines = new Map<number, EngineLies>()
  const names: string[] = []
  const liars = 1 + random.below(Math.floor(workers / 4))
  const isKept = (name: string): boolean => only === undefined || only.includes(name)
  for (let liar = 0; liar < liars; liar++) {
    let lies: EngineLies = {}
    for (const [name, make] of Object.entries(ENGINE_LIES)) {
      const lie = make(random)
      if (random.next() >= LIE_CHANCE || !isKept(name)) continue
      const before = lies.usage
      const usage: EngineLies['usage'] =
        before === undefined || lie.usage === undefined
          ? (lie.usage ?? before)
          : (truth, draws) => lie.usage!(before(truth, draws), draws)
      lies = { ...lies, ...lie, ...(usage && { usage }) }
      names.push(`worker ${liar}: ${name}${detail(lie)}`)
    }
    if (Object.keys(lies).length > 0) engines.set(liar, lies)
  }
  let client: ClientLies | undefined
  const share = 0.05 + 0.25 * random.next()
  for (const [name, make] of Object.entries(CLIENT_LIES)) {
    const lie = make(random)
    if (random.next() >= LIE_CHANCE || !isKept(name)) continue
    const none = { share, isRefused: false, outputTokensMax: undefined, claims: undefined }
    client = { ...none, ...client, ...lie }
    names.push(`clients: ${name}`)
  }
  return { engines, client, names }
}

function detail(lie: EngineLies): string {
  const values = Object.values(lie).filter(value => typeof value !== 'function')
  return values.length === 0 ? '' : ` ${JSON.stringify(values)}`
}

export function oneOf<T>(random: Random, these: readonly T[]): T {
  return these[random.below(these.length)]!
}
