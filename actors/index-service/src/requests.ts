/**
 * Reads the bodies of requests: every field is checked, with one sentence about the first wrong one. Unknown
 * fields are ignored.
 */

import { looksLikeKey } from '@homing/base'
import { BodyFields, readMoeQuery } from '@homing/http'
import type { MoeQuery } from '@homing/placement'
import { faultOfEndpoint, isSameSocket } from '@homing/transport'
import { BadRequestError } from './errors.ts'

/** A model and a routing group: what has an index of its own, and one block size. */
export interface Partition {
  readonly model: string
  readonly group: string
}

/** One rank of an instance, as the registry takes it. */
export interface RankRegistration extends Partition {
  readonly instanceId: bigint
  readonly dpRank: number
  /** 'tcp://host:port' or 'ipc://path' of the engine's PUB socket; undefined: its events are not followed. */
  readonly endpoint: string | undefined
  readonly replayEndpoint: string | undefined
  readonly blockSizeTokens: number
}

/** One rank whose events are followed. */
export interface Registration extends RankRegistration {
  readonly endpoint: string
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
  readonly moeQuery: MoeQuery | undefined
  readonly tokens: Uint32Array
  readonly loraName: string | undefined
  readonly cacheSalt: string | undefined
}

export interface HashQuery extends Partition {
  readonly moeQuery: MoeQuery | undefined
  /** Pairs [lo, hi] of local hashes. */
  readonly localHashes: Int32Array
}

export const DEFAULT_GROUP = 'default'
const BLOCK_SIZE_MAX = 65_536
/** Of a data-parallel rank, as the wire has it. */
export const RANK_MAX = 2 ** 32 - 1

export function readRegistration(body: Uint8Array): Registration {
  const fields = fieldsOf('register', body)
  const registration = {
    instanceId: fields.unsigned64('instance_id'),
    model: fields.name('model_name'),
    group: newGroupOf(fields),
    dpRank: fields.integer('dp_rank', 0, RANK_MAX, 0),
    blockSizeTokens: fields.integer('block_size', 1, BLOCK_SIZE_MAX),
    endpoint: fields.checked('endpoint', faultOfSource),
    replayEndpoint: fields.has('replay_endpoint')
      ? fields.checked('replay_endpoint', faultOfSource)
      : undefined,
  }
  const { endpoint, replayEndpoint } = registration
  if (replayEndpoint !== undefined && isSameSocket(endpoint, replayEndpoint)) {
    fields.refuse(`replay_endpoint must differ from endpoint, which is ${endpoint}`)
  }
  return registration
}

export function readUnregistration(body: Uint8Array): Unregistration {
  const fields = fieldsOf('unregister', body)
  return {
    instanceId: fields.unsigned64('instance_id'),
    model: fields.name('model_name'),
    group: fields.has('routing_group') ? fields.name('routing_group') : undefined,
    dpRank: fields.has('dp_rank') ? fields.integer('dp_rank', 0, RANK_MAX) : undefined,
  }
}

export function readTokenQuery(body: Uint8Array): TokenQuery {
  const fields = fieldsOf('query', body)
  return {
    model: fields.name('model_name'),
    group: fields.name('routing_group', DEFAULT_GROUP),
    tokens: fields.tokens('token_ids'),
    loraName: fields.text('lora_name'),
    cacheSalt: fields.text('cache_salt'),
    moeQuery: readMoeQuery(fields, 'moe_query', fields.value('moe_query')),
  }
}

export function readHashQuery(body: Uint8Array): HashQuery {
  const fields = fieldsOf('query', body)
  if (fields.text('cache_salt') !== undefined) {
    fields.refuse('cache_salt is not accepted with block_hashes, which must have been made with the salt')
  }
  return {
    model: fields.name('model_name'),
    group: fields.name('routing_group', DEFAULT_GROUP),
    localHashes: fields.hashes('block_hashes'),
    moeQuery: readMoeQuery(fields, 'moe_query', fields.value('moe_query')),
  }
}

/** The base URL of a peer, without a slash at the end. */
export function readPeer(body: Uint8Array): string {
  const fields = fieldsOf('read the peer', body)
  return peerUrl(fields.checked('url', faultOfPeer))
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

function fieldsOf(action: string, body: Uint8Array): BodyFields {
  return new BodyFields(action, body, (what, why) => new BadRequestError(what, why))
}

/** Routing group of a registration: dumps name a model and its group with a colon between them. */
function newGroupOf(fields: BodyFields): string {
  const group = fields.name('routing_group', DEFAULT_GROUP)
  return group.includes(':') ? fields.refuse('routing_group must not contain a colon') : group
}
