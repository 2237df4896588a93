/** Reads the bodies of requests: every field is checked, with one sentence about the first wrong one. */

import { type BodyFields, bodyFields } from '@homing/http'

/** A model and a routing group: workers that share one block size, and requests with ids of their own. */
export interface Partition {
  readonly model: string
  readonly group: string
}

/** A worker as it is to be registered. */
export interface Registration extends Partition {
  readonly workerId: bigint
  readonly blockSizeTokens: number
  /** Its ranks are rankFirst … rankFirst + rankCount − 1. */
  readonly rankFirst: number
  readonly rankCount: number
}

export interface WorkerName extends Partition {
  readonly workerId: bigint
}

/** What a request is known by. */
export interface RequestName extends Partition {
  readonly requestId: string
}

/** A prompt: its blocks, and the tokens of it that are to be computed. */
export interface SlotPrompt extends Partition {
  /** Pairs [lo, hi] of sequence hashes, from the first block on. */
  readonly sequenceHashes: Int32Array
  readonly newTokens: number
}

export interface Addition extends SlotPrompt, RequestName {
  readonly workerId: bigint
  readonly dpRank: number
}

const DEFAULT_GROUP = 'default'
const BLOCK_SIZE_MAX = 65_536
/** Of a data-parallel rank, as the wire has it. */
const RANK_MAX = 2 ** 32 - 1
/** Of one prompt, as replicas tell it. */
const TOKENS_MAX = 2 ** 30
/** Ids travel to replicas beside the name of their model. */
export const REQUEST_ID_LENGTH_MAX = 256

export function readRegistration(body: Uint8Array): Registration {
  const fields = bodyFields('register', body)
  const rankFirst = fields.integer('dp_start', 0, RANK_MAX, 0)
  return {
    workerId: fields.unsigned64('worker_id'),
    ...partitionOf(fields),
    blockSizeTokens: fields.integer('block_size', 1, BLOCK_SIZE_MAX),
    rankFirst,
    rankCount: fields.integer('dp_size', 1, RANK_MAX + 1 - rankFirst, 1),
  }
}

export function readUnregistration(body: Uint8Array): WorkerName {
  const fields = bodyFields('unregister', body)
  return { workerId: fields.unsigned64('worker_id'), ...partitionOf(fields) }
}

export function readAddition(body: Uint8Array): Addition {
  const fields = bodyFields('add the request', body)
  return {
    ...requestOf(fields),
    workerId: fields.unsigned64('worker_id'),
    dpRank: fields.integer('dp_rank', 0, RANK_MAX, 0),
    ...promptOf(fields),
  }
}

/** `action`: 'free the request'. */
export function readRequestName(action: string, body: Uint8Array): RequestName {
  return requestOf(bodyFields(action, body))
}

export function readPrompt(body: Uint8Array): SlotPrompt {
  const fields = bodyFields('tell potential loads', body)
  return { ...partitionOf(fields), ...promptOf(fields) }
}

function partitionOf(fields: BodyFields): Partition {
  return { model: fields.name('model_name'), group: fields.name('routing_group', DEFAULT_GROUP) }
}

function requestOf(fields: BodyFields): RequestName {
  const requestId = fields.name('request_id', undefined, REQUEST_ID_LENGTH_MAX)
  return { ...partitionOf(fields), requestId }
}

function promptOf(fields: BodyFields): Omit<SlotPrompt, keyof Partition> {
  return {
    sequenceHashes: fields.hashes('sequence_hashes'),
    newTokens: fields.integer('new_isl_tokens', 0, TOKENS_MAX, 0),
  }
}
