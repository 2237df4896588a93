/** Reads the bodies of requests about workers and reservations: every field is checked. */

import { faultOfSource } from '@homing/actors/index-service'
import { type BodyFields, bodyFields } from '@homing/http'
import { isSameSocket } from '@homing/transport'

/** A model and a routing group: workers that share one block size. */
export interface Partition {
  readonly model: string
  readonly group: string
}

export const LIFECYCLES = ['schedulable', 'draining', 'unschedulable'] as const

/** What is known of a worker; undefined: not yet, or not at all. */
export interface WorkerSpec extends Partition {
  readonly workerId: bigint
  /** Where callers send requests; any text. */
  readonly endpoint: string | undefined
  readonly blockSizeTokens: number | undefined
  /** Its ranks are rankFirst … rankFirst + rankCount − 1. */
  readonly rankFirst: number
  readonly rankCount: number
  /** By rank. */
  readonly eventsEndpoints: Readonly<Record<string, string>>
  readonly replayEndpoints: Readonly<Record<string, string>>
  readonly maxBatchedTokens: number | undefined
  readonly kvBlocks: number | undefined
  readonly maxModelTokens: number | undefined
  readonly taints: readonly string[]
  /** What its operator wants of it. */
  readonly wanted: (typeof LIFECYCLES)[number]
}

/** A reservation of what was selected before, or of what its caller says. */
export interface ReservationBody extends Partition {
  readonly selectionId: string
  /** Undefined: what was selected under that id. */
  readonly explicit: ExplicitReservation | undefined
}

export interface ExplicitReservation {
  readonly workerId: bigint
  readonly dpRank: number
  /** Pairs [lo, hi]. */
  readonly sequenceHashes: Int32Array
  readonly promptTokens: number
  readonly prefillTokens: number
  readonly countsPrefill: boolean
}

const DEFAULT_NAME = 'default'
const BLOCK_SIZE_MAX = 65_536
/** Of a data-parallel rank, as the wire has it. */
export const RANK_MAX = 2 ** 32 - 1
const RANKS_MAX = 1024
/** Of one prompt. */
export const TOKENS_MAX = 2 ** 30
const TAINTS_MAX = 64
const TAINT_LENGTH_MAX = 256
const SELECTION_ID_LENGTH_MAX = 256

/** `before`: what is changed; undefined: the body says all. */
export function readWorker(body: Uint8Array, before?: WorkerSpec): WorkerSpec {
  const fields = bodyFields(
    before === undefined ? 'add the worker' : `change worker ${before.workerId}`,
    body,
  )
  const optional = (name: string, max: number): number | undefined =>
    fields.has(name) ? fields.integer(name, 1, max) : undefined
  const rankFirst = fields.integer('data_parallel_start_rank', 0, RANK_MAX, before?.rankFirst ?? 0)
  const ranksMax = Math.min(RANKS_MAX, RANK_MAX + 1 - rankFirst)
  const spec: WorkerSpec = {
    workerId: before?.workerId ?? fields.unsigned64('worker_id'),
    model: fields.name('model_name', before?.model ?? DEFAULT_NAME),
    group: fields.name('routing_group', before?.group ?? DEFAULT_NAME),
    endpoint: fields.has('endpoint') ? fields.name('endpoint') : before?.endpoint,
    blockSizeTokens: optional('block_size', BLOCK_SIZE_MAX) ?? before?.blockSizeTokens,
    rankFirst,
    rankCount: fields.integer('data_parallel_size', 1, ranksMax, before?.rankCount ?? 1),
    eventsEndpoints: endpointsOf(fields, 'kv_events_endpoints') ?? before?.eventsEndpoints ?? {},
    replayEndpoints: endpointsOf(fields, 'replay_endpoint') ?? before?.replayEndpoints ?? {},
    maxBatchedTokens: optional('max_num_batched_tokens', TOKENS_MAX) ?? before?.maxBatchedTokens,
    kvBlocks: optional('total_kv_blocks', TOKENS_MAX) ?? before?.kvBlocks,
    maxModelTokens: optional('max_model_len', TOKENS_MAX) ?? before?.maxModelTokens,
    taints: textsOf(fields, 'taints', fields.value('taints')) ?? before?.taints ?? [],
    wanted: lifecycleOf(fields, before?.wanted ?? 'schedulable'),
  }
  if (spec.group.includes(':')) fields.refuse('routing_group must not contain a colon')
  checkSources(fields, spec)
  return spec
}

export function readReservation(body: Uint8Array): ReservationBody {
  const fields = bodyFields('reserve', body)
  const head = { selectionId: selectionIdOf(fields), ...partitionOf(fields) }
  if (!fields.has('worker_id')) return { ...head, explicit: undefined }
  const promptTokens = fields.integer('isl_tokens', 0, TOKENS_MAX)
  return {
    ...head,
    explicit: {
      workerId: fields.unsigned64('worker_id'),
      dpRank: fields.integer('dp_rank', 0, RANK_MAX, 0),
      sequenceHashes: fields.hashes('sequence_hashes'),
      promptTokens,
      prefillTokens: fields.integer('effective_prefill_tokens', 0, promptTokens),
      countsPrefill: fields.flag('track_prefill_tokens', true),
    },
  }
}

/** What a block of the answer weighs, 0 … 1. */
export function readOutputBlock(body: Uint8Array): number {
  if (body.length === 0) return 1
  const fields = bodyFields('count the block', body)
  const value = fields.value('decay_fraction') ?? 1
  if (typeof value !== 'number') return fields.mistyped('decay_fraction must be a number from 0 to 1')
  return value >= 0 && value <= 1 ? value : fields.refuse('decay_fraction must be a number from 0 to 1')
}

export function partitionOf(fields: BodyFields): Partition {
  return {
    model: fields.name('model_name', DEFAULT_NAME),
    group: fields.name('routing_group', DEFAULT_NAME),
  }
}

export function selectionIdOf(fields: BodyFields): string {
  return fields.name('selection_id', undefined, SELECTION_ID_LENGTH_MAX)
}

/** Undefined: there are none. `value`: of the field that is called `name`. */
export function textsOf(fields: BodyFields, name: string, value: unknown): readonly string[] | undefined {
  if (value === undefined || value === null) return undefined
  if (!Array.isArray(value) || !value.every(text => typeof text === 'string'))
    return fields.mistyped(`${name} must be a list of strings`)
  if (value.length > TAINTS_MAX) return fields.refuse(`${name} has more than ${TAINTS_MAX} entries`)
  for (const text of value as string[]) checkTaint(fields, name, text)
  return value as readonly string[]
}

export function checkTaint(fields: BodyFields, name: string, text: string): void {
  if (text === '' || text.length > TAINT_LENGTH_MAX)
    fields.refuse(`${name} must have texts of 1 to ${TAINT_LENGTH_MAX} characters`)
}

function lifecycleOf(fields: BodyFields, preset: WorkerSpec['wanted']): WorkerSpec['wanted'] {
  const given = fields.text('lifecycle') ?? preset
  const lifecycle = LIFECYCLES.find(each => each === given)
  return lifecycle ?? fields.refuse(`lifecycle must be one of ${LIFECYCLES.join(', ')}`)
}

/** By rank; a text alone is that of rank 0. Undefined: the field is not there. */
function endpointsOf(fields: BodyFields, name: string): Readonly<Record<string, string>> | undefined {
  if (!fields.has(name)) return undefined
  if (typeof fields.value(name) === 'string') return { 0: fields.checked(name, faultOfSource) }
  const given = fields.object(name)
  for (const [rank, endpoint] of Object.entries(given)) {
    if (!/^(?:0|[1-9]\d{0,9})$/.test(rank))
      fields.refuse(`${name} must name each endpoint by its rank, such as "0"`)
    if (typeof endpoint !== 'string') return fields.mistyped(`${name}["${rank}"] must be a string`)
    const fault = faultOfSource(endpoint)
    if (fault !== undefined) fields.refuse(`${name}["${rank}"] ${fault}`)
  }
  return given as Readonly<Record<string, string>>
}

function checkSources(fields: BodyFields, spec: WorkerSpec): void {
  const { rankFirst, rankCount, eventsEndpoints, replayEndpoints } = spec
  const ranks = `${rankFirst} to ${rankFirst + rankCount - 1}`
  for (const [name, endpoints] of [
    ['kv_events_endpoints', eventsEndpoints],
    ['replay_endpoint', replayEndpoints],
  ] as const)
    for (const rank of Object.keys(endpoints))
      if (Number(rank) < rankFirst || Number(rank) >= rankFirst + rankCount)
        fields.refuse(`${name} names rank ${rank}, and the worker has ${ranks}`)
  const events = Object.values(eventsEndpoints)
  for (const [rank, replay] of Object.entries(replayEndpoints)) {
    if (eventsEndpoints[rank] === undefined)
      fields.refuse(`replay_endpoint names rank ${rank}, which has no endpoint in kv_events_endpoints`)
    if (events.some(endpoint => isSameSocket(endpoint, replay)))
      fields.refuse(`replay_endpoint ${replay} is that of events, too`)
  }
  for (const [i, endpoint] of events.entries())
    if (events.findIndex(other => isSameSocket(endpoint, other)) < i)
      fields.refuse(`kv_events_endpoints names ${endpoint} for two ranks`)
}
