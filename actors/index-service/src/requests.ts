/**
 * Reads the bodies of requests: every field is checked, with one sentence about the first wrong one. Unknown
 * fields are ignored.
 */

import { looksLikeKey, openText, parseWideJson, tryBits64, tryUnsigned64 } from '@homing/base'
import { bigintToHash } from '@homing/blocks'
import { faultOfEndpoint, isSameSocket } from '@homing/transport'
import { BadRequestError } from './errors.ts'

/** A model and a routing group: what has an index of its own, and one block size. */
export interface Partition {
  readonly model: string
  readonly group: string
}

/** One rank of an instance, as it is to be registered. */
export interface Registration extends Partition {
  readonly instanceId: bigint
  readonly dpRank: number
  /** 'tcp://host:port' or 'ipc://path' of the engine's PUB socket. */
  readonly endpoint: string
  readonly replayEndpoint: string | undefined
  readonly blockSizeTokens: number
}

export interface Unregistration {
  readonly instanceId: bigint
  readonly model: string
  /** Undefined: whichever it is in. */
  readonly group: string | undefined
  /** Undefined: all of them. */
  readonly dpRank: number | undefined
}

export interface TokenQuery extends Partition {
  readonly tokens: Uint32Array
  readonly loraName: string | undefined
  readonly cacheSalt: string | undefined
}

export interface HashQuery extends Partition {
  /** Pairs [lo, hi] of local hashes. */
  readonly localHashes: Int32Array
}

export const DEFAULT_GROUP = 'default'
const MODEL_NAME_LENGTH_MAX = 1024
const BLOCK_SIZE_MAX = 65_536
/** Of a data-parallel rank, as the wire has it. */
export const RANK_MAX = 2 ** 32 - 1
const TOKEN_MAX = 2 ** 32 - 1

export function readRegistration(body: Uint8Array): Registration {
  const fields = new Fields('register', body)
  const registration = {
    instanceId: fields.instanceId(),
    model: fields.name('model_name'),
    group: fields.newGroup('routing_group'),
    dpRank: fields.integer('dp_rank', 0, RANK_MAX, 0),
    blockSizeTokens: fields.integer('block_size', 1, BLOCK_SIZE_MAX),
    endpoint: fields.endpoint('endpoint'),
    replayEndpoint: fields.has('replay_endpoint') ? fields.endpoint('replay_endpoint') : undefined,
  }
  const { endpoint, replayEndpoint } = registration
  if (replayEndpoint !== undefined && isSameSocket(endpoint, replayEndpoint)) {
    fields.refuse(`replay_endpoint must differ from endpoint, which is ${endpoint}`)
  }
  return registration
}

export function readUnregistration(body: Uint8Array): Unregistration {
  const fields = new Fields('unregister', body)
  return {
    instanceId: fields.instanceId(),
    model: fields.name('model_name'),
    group: fields.has('routing_group') ? fields.name('routing_group') : undefined,
    dpRank: fields.has('dp_rank') ? fields.integer('dp_rank', 0, RANK_MAX) : undefined,
  }
}

export function readTokenQuery(body: Uint8Array): TokenQuery {
  const fields = new Fields('query', body)
  return {
    model: fields.name('model_name'),
    group: fields.name('routing_group', DEFAULT_GROUP),
    tokens: fields.tokens('token_ids'),
    loraName: fields.text('lora_name'),
    cacheSalt: fields.text('cache_salt'),
  }
}

export function readHashQuery(body: Uint8Array): HashQuery {
  const fields = new Fields('query', body)
  if (fields.text('cache_salt') !== undefined) {
    fields.refuse('cache_salt is not accepted with block_hashes, which must have been made with the salt')
  }
  return {
    model: fields.name('model_name'),
    group: fields.name('routing_group', DEFAULT_GROUP),
    localHashes: fields.hashes('block_hashes'),
  }
}

/** The base URL of a peer, without a slash at the end. */
export function readPeer(body: Uint8Array): string {
  const fields = new Fields('read the peer', body)
  const url = fields.name('url')
  const fault = faultOfPeer(url)
  return fault === undefined ? peerUrl(url) : fields.refuse(`url ${JSON.stringify(openText(url))} ${fault}`)
}

/** Why a text is no base URL of a peer; undefined: it is. */
export function faultOfPeer(text: string): string | undefined {
  const url = URL.parse(text)
  if (url === null || url.hostname === '' || url.protocol !== 'http:') {
    return 'must be a URL such as http://10.0.0.2:8090'
  }
  if (url.username !== '' || url.password !== '') return 'must not carry a user name or password'
  if (url.search !== '' || url.hash !== '') return 'must end with the path'
  if (looksLikeKey(text)) return 'looks like an API key, which GET /peers would show'
  return undefined
}

export function peerUrl(text: string): string {
  let end = text.length
  while (text[end - 1] === '/') end--
  return text.slice(0, end)
}

/** Why a text is no endpoint that can be connected to; undefined: it is. */
export function faultOfSource(text: string): string | undefined {
  if (looksLikeKey(text)) return 'looks like an API key, which GET /workers would show'
  if (/^tcp:\/\/(\*|0\.0\.0\.0):/.test(text)) return 'names every interface; name the host of the engine'
  const port = /^tcp:.*:(\d{1,5})$/.exec(text)?.[1]
  if (port !== undefined && !(Number(port) >= 1 && Number(port) <= 65_535))
    return 'has a port out of range 1 … 65535'
  if (!/^(tcp|ipc):\/\/./.test(text)) return 'must be tcp://HOST:PORT or ipc://PATH'
  const fault = faultOfEndpoint(text)
  return fault && `cannot be used: ${fault}`
}

/** The fields of one body. `action` begins the sentences of its faults. */
class Fields {
  readonly #action: string
  readonly #fields: Readonly<Record<string, unknown>>

  constructor(action: string, body: Uint8Array) {
    this.#action = action
    let value: unknown
    try {
      value = parseWideJson(new TextDecoder('utf-8', { fatal: true }).decode(body))
    } catch (thrown) {
      const why = thrown instanceof SyntaxError ? thrown.message : 'it is not UTF-8'
      this.refuse(`the body is not JSON: ${why}`)
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      this.refuse('the body is not a JSON object')
    }
    this.#fields = value as Readonly<Record<string, unknown>>
  }

  refuse(why: string): never {
    throw new BadRequestError(this.#action, why)
  }

  /** Null is as if it were not there. */
  has(name: string): boolean {
    return Object.hasOwn(this.#fields, name) && this.#fields[name] !== null
  }

  text(name: string): string | undefined {
    if (!this.has(name)) return undefined
    const value = this.#fields[name]
    return typeof value === 'string' ? value : this.refuse(`${name} must be a string`)
  }

  name(name: string, preset?: string): string {
    const text = this.text(name) ?? preset ?? this.refuse(`${name} is missing`)
    if (text === '') this.refuse(`${name} must not be empty`)
    if (text.length > MODEL_NAME_LENGTH_MAX)
      this.refuse(`${name} has more than ${MODEL_NAME_LENGTH_MAX} characters`)
    return text
  }

  /** Routing group of a registration: dumps name a model and its group with a colon between them. */
  newGroup(name: string): string {
    const group = this.name(name, DEFAULT_GROUP)
    return group.includes(':') ? this.refuse(`${name} must not contain a colon`) : group
  }

  endpoint(name: string): string {
    const text = this.name(name)
    const fault = faultOfSource(text)
    return fault === undefined ? text : this.refuse(`${name} ${JSON.stringify(openText(text))} ${fault}`)
  }

  integer(name: string, min: number, max: number, preset?: number): number {
    if (!this.has(name)) return preset ?? this.refuse(`${name} is missing`)
    const value = this.#fields[name]
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value
    return this.refuse(`${name} must be a whole number from ${min} to ${max}`)
  }

  instanceId(): bigint {
    if (!this.has('instance_id')) this.refuse('instance_id is missing')
    return (
      tryUnsigned64(this.#fields['instance_id']) ??
      this.refuse('instance_id must be a whole number from 0 to 18446744073709551615')
    )
  }

  tokens(name: string): Uint32Array {
    const list = this.#list(name)
    const tokens = new Uint32Array(list.length)
    for (let i = 0; i < list.length; i++) {
      const value = list[i]
      if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > TOKEN_MAX) {
        this.refuse(`${name}[${i}] must be a whole number from 0 to ${TOKEN_MAX}`)
      }
      tokens[i] = value
    }
    return tokens
  }

  hashes(name: string): Int32Array {
    const list = this.#list(name)
    const words = new Int32Array(list.length * 2)
    for (let i = 0; i < list.length; i++) {
      const bits = tryBits64(list[i]) ?? this.refuse(`${name}[${i}] must be a 64-bit whole number`)
      const { lo, hi } = bigintToHash(bits)
      words[2 * i] = lo
      words[2 * i + 1] = hi
    }
    return words
  }

  #list(name: string): readonly unknown[] {
    if (!this.has(name)) this.refuse(`${name} is missing`)
    const value = this.#fields[name]
    return Array.isArray(value) ? value : this.refuse(`${name} must be a list of numbers`)
  }
}
