/**
 * Reads what engines answer to a probe: models, configuration, event sources, metrics. Every reader
 * takes the parsed JSON or text of one answer and leaves out what it does not find: an engine that
 * reports less is still a worker.
 *
 * Sources: vLLM 0.15 to 0.32 and SGLang 0.5.23 as recorded; the three shapes of `/kv_event_sources`
 * that are in use; TensorRT-LLM's documentation.
 */

import { isShown, shownText } from '@homing/base'
import { faultOfEndpoint } from '@homing/transport'
import { type SleepState, sleepStateIn } from './engine-sleep.ts'
import type { EngineFamily, WorkerModel } from './fleet.ts'
import type { ProbedLegs, WorkerRole } from './leg-names.ts'
import type { EventSource } from './probe-outcome.ts'

/** Of a line of metrics; vLLM's configuration has about 1,000. */
const LABELS_CHARACTERS_MAX = 65_536
/** Most ranks of one worker, if the operator gives them. */
export const RANKS_MAX = 1024

/**
 * Most ranks that an engine may claim for itself. Each takes a worker slot of the router; the largest
 * deployments that are known have 256 in one engine. One that claims more counts as one rank.
 */
export const PROBED_RANKS_MAX = 256

/**
 * Models of one worker that are listed, adapters included; engines list those first that they were started
 * with. A longer name is no name: requests with it would not be taken either.
 */
export const MODELS_MAX = 1024
export const LISTED_CHARACTERS_MAX = 1024

/** What a worker of token ids says of the input of its model (docs/worker.md). */
const TOKENS_INPUT = 'Tokens'

/** Numbers of `engine=` labels that are counted. */
const ENGINE_LABELS_MAX = 65_536
const PORT_MAX = 65_535

type JsonObject = Readonly<Record<string, unknown>>

/** `/v1/models`; undefined when it is no list of models. */
export function readModels(
  body: unknown,
): { readonly models: readonly WorkerModel[]; readonly owner: string | undefined } | undefined {
  const data = isObject(body) ? body['data'] : undefined
  if (!Array.isArray(data)) return undefined
  const models: WorkerModel[] = []
  let owner: string | undefined
  for (const entry of data.filter(isObject)) {
    const name = shortText(entry['id'])
    if (name === undefined) continue
    if (models.length >= MODELS_MAX) break
    owner ??= shortText(entry['owned_by'])
    models.push({
      name,
      base: shortText(entry['parent']),
      root: shortText(entry['root']),
      maxModelTokens: count(entry['max_model_len']),
      ...(entry['model_input'] === TOKENS_INPUT ? { takesTokens: true } : {}),
    })
  }
  return { models, owner }
}

/**
 * The models of SGLang with the tokenizer path from `/model_info`: in `/v1/models`, `root` is only the served
 * name.
 */
export function withTokenizerPath(
  models: readonly WorkerModel[],
  modelInfo: unknown,
): readonly WorkerModel[] {
  if (!isObject(modelInfo)) return models
  const path = shortText(modelInfo['tokenizer_path']) ?? shortText(modelInfo['model_path'])
  if (path === undefined) return models
  return models.map(card => (card.root === card.name ? { ...card, root: path } : card))
}

/** Facts from an engine's configuration: `/server_info` of SGLang, or of vLLM in development mode. */
export interface ServerInfo {
  readonly family: EngineFamily | undefined
  readonly version: string | undefined
  readonly blockSizeTokens: number | undefined
  readonly maxBatchedTokens: number | undefined
  readonly kvTokens: number | undefined
  readonly ranks: number | undefined
  readonly eventSources: readonly EventSource[]
  readonly legs?: ProbedLegs | undefined
}

/** `host`: what a wildcard host in an endpoint is replaced by. */
export function readServerInfo(body: unknown, host: string): ServerInfo | undefined {
  if (!isObject(body)) return undefined
  if ('vllm_config' in body) return readVllmConfig(body['vllm_config'])
  const events = isObject(body['kv_events']) ? body['kv_events'] : undefined
  const pageSize = count(body['page_size'])
  const legs = readLegs(body)
  const isSglang = pageSize !== undefined || 'max_total_num_tokens' in body || 'disaggregation_mode' in body
  return {
    family: isSglang ? 'sglang' : undefined,
    version: shortText(body['version']),
    blockSizeTokens: count(events?.['block_size']) ?? pageSize ?? count(body['tokens_per_block']),
    maxBatchedTokens:
      count(body['chunked_prefill_size']) ??
      count(body['max_prefill_tokens']) ??
      count(body['max_num_tokens']),
    kvTokens: count(body['max_total_num_tokens']),
    ranks: rankCount(events?.['dp_size']) ?? rankCount(body['dp_size']),
    eventSources: events === undefined ? [] : readSglangEvents(events, rankCount(body['dp_size']) ?? 1, host),
    ...(legs === undefined ? {} : { legs }),
  }
}

/** SGLang: `disaggregation_mode` is 'null', 'prefill' or 'decode'. */
function readLegs(body: JsonObject): ProbedLegs | undefined {
  const mode = body['disaggregation_mode']
  const role: WorkerRole | undefined =
    mode === 'prefill' || mode === 'decode' ? mode : mode === 'null' || mode === null ? 'both' : undefined
  const port = count(body['disaggregation_bootstrap_port'])
  const bootstrapPort = port === undefined || port > PORT_MAX ? undefined : port
  return role === undefined ? undefined : { role, bootstrapPort }
}

/**
 * `/kv_event_sources` in its three shapes: a list, `{ sources: list }`, an object keyed by rank.
 * Undefined when it is none of them.
 */
export function readEventSources(body: unknown, host: string): readonly EventSource[] | undefined {
  const list = Array.isArray(body)
    ? body
    : isObject(body) && Array.isArray(body['sources'])
      ? body['sources']
      : undefined
  const entries: (readonly [rank: number | undefined, source: unknown])[] =
    list !== undefined
      ? list.map((source, position) => [position, source] as const)
      : isObject(body)
        ? Object.entries(body).map(
            ([rank, source]) => [/^\d+$/.test(rank) ? Number(rank) : undefined, source] as const,
          )
        : []
  if (list === undefined && !isObject(body)) return undefined
  const sources: EventSource[] = []
  for (const [position, source] of entries) {
    if (!isObject(source) || source['enable_kv_cache_events'] === false || source['publisher'] === 'null')
      continue
    const dpRank = whole(source['data_parallel_rank']) ?? whole(source['dp_rank']) ?? position
    const named = text(source['endpoint'])
    if (dpRank === undefined || dpRank >= RANKS_MAX || named === undefined) continue
    if (sources.length === RANKS_MAX) break
    sources.push({
      dpRank,
      ...eventsAt(named, host),
      replayEndpoint: dialled(text(source['replay_endpoint']), host),
      topic: shortText(source['topic']) ?? '',
    })
  }
  return sources.sort((a, b) => a.dpRank - b.dpRank)
}

export interface MetricsFacts {
  readonly isVllm: boolean
  readonly isSglang: boolean
  readonly blockSizeTokens: number | undefined
  /** Per rank. */
  readonly kvBlocks: number | undefined
  readonly ranks: number | undefined
  readonly processStartSeconds: number | undefined
  /** Of the deepest sleep of its ranks. */
  readonly sleepState: SleepState
}

/** The last second that a Date can name. */
const UNIX_SECONDS_MAX = 8.64e12

/** `/metrics` in Prometheus text. */
export function readMetrics(metrics: string): MetricsFacts {
  const engines = new Set<string>()
  let isSglang = false
  let config: Readonly<Record<string, string>> | undefined
  let processStartSeconds: number | undefined
  let sleepState: SleepState
  for (const line of metrics.split('\n')) {
    if (line.startsWith('vllm:')) {
      const state = sleepStateIn(line)
      if (state === 'discarded') sleepState = 'discarded'
      else if (state !== undefined && sleepState !== 'discarded')
        sleepState = state === 'awake' || sleepState === 'awake' ? 'awake' : 'kept'
      const engine = /[{,]engine="(\d+)"/.exec(line)?.[1]
      if (engine !== undefined && engines.size < ENGINE_LABELS_MAX) engines.add(engine)
      if (config === undefined && line.startsWith('vllm:cache_config_info{')) config = labelsOf(line)
    } else if (line.startsWith('sglang:')) {
      isSglang = true
    } else if (line.startsWith('process_start_time_seconds')) {
      const value = Number(line.slice(line.lastIndexOf(' ') + 1))
      if (value > 0 && value <= UNIX_SECONDS_MAX) processStartSeconds ??= value
    }
  }
  const blockSizeTokens = count(Number(config?.['block_size']))
  const kvTokens = count(Number(config?.['kv_cache_size_tokens']))
  const kvBlocks =
    // In models with several cache groups, the groups share the blocks, so the tokens give the capacity.
    kvTokens !== undefined && blockSizeTokens !== undefined
      ? Math.floor(kvTokens / blockSizeTokens)
      : count(Number(config?.['num_gpu_blocks']))
  return {
    isVllm: engines.size > 0 || config !== undefined,
    isSglang,
    blockSizeTokens,
    kvBlocks,
    ranks: engines.size === 0 ? undefined : engines.size,
    processStartSeconds,
    sleepState,
  }
}

/** `{ "version": "0.32.0" }`. */
export function readVersion(body: unknown): string | undefined {
  return isObject(body) ? shortText(body['version']) : undefined
}

/** The family that the owner of a model names. */
export function familyOfOwner(owner: string | undefined): EngineFamily | undefined {
  const name = owner?.toLowerCase() ?? ''
  if (name.includes('vllm')) return 'vllm'
  if (name.includes('sglang')) return 'sglang'
  if (name.includes('trt') || name.includes('tensorrt')) return 'trtllm'
  if (name.includes('homing')) return 'homing'
  return undefined
}

/**
 * An endpoint to connect to: `*` and similar hosts are replaced by the host of the worker's URL. Undefined:
 * no connection is possible.
 */
export function dialled(endpoint: string | undefined, host: string): string | undefined {
  if (endpoint === undefined) return undefined
  const named = withHost(endpoint, host)
  return faultOfEndpoint(named) === undefined ? named : undefined
}

/** Where events are published, and why nothing can connect there. */
function eventsAt(endpoint: string, host: string): Pick<EventSource, 'endpoint' | 'fault'> {
  const named = withHost(endpoint, host)
  const fault = faultOfEndpoint(named)
  return fault === undefined ? { endpoint: named } : { endpoint: shownText(named), fault }
}

function withHost(endpoint: string, host: string): string {
  const [, given, port] = /^tcp:\/\/(.*):(\d+)$/.exec(endpoint) ?? []
  const isWildcard =
    given === '*' || given === '0.0.0.0' || given === '::' || given === '[::]' || given === ''
  return isWildcard ? `tcp://${host}:${port}` : endpoint
}

function readSglangEvents(events: JsonObject, dpSize: number, host: string): readonly EventSource[] {
  if (events['publisher'] !== undefined && events['publisher'] !== 'zmq') return []
  const topic = text(events['topic']) ?? ''
  const replayBase = count(events['replay_endpoint_port_base'])
  const replayHost = text(events['replay_endpoint_host']) ?? text(events['endpoint_host']) ?? '*'
  const replayOf = (rank: number): string | undefined =>
    replayBase === undefined ? undefined : dialled(`tcp://${replayHost}:${replayBase + rank}`, host)
  const publishers = events['publishers']
  if (Array.isArray(publishers)) {
    const sources = publishers
      .slice(0, RANKS_MAX)
      .filter(isObject)
      .map(publisher => {
        const dpRank = whole(publisher['dp_rank']) ?? 0
        const named = text(publisher['endpoint'])
        return { dpRank, ...eventsAt(named ?? '', host), replayEndpoint: replayOf(dpRank), topic }
      })
    return sources.filter(source => source.endpoint !== '')
  }
  const base = count(events['endpoint_port_base'])
  if (base === undefined) return []
  const ranks = rankCount(events['dp_size']) ?? dpSize
  return Array.from({ length: ranks }, (_, dpRank) => ({
    dpRank,
    ...eventsAt(`tcp://${text(events['endpoint_host']) ?? '*'}:${base + dpRank}`, host),
    replayEndpoint: replayOf(dpRank),
    topic,
  }))
}

/** vLLM prints its configuration as an object or as text, by version. */
function readVllmConfig(config: unknown): ServerInfo {
  const printed = typeof config === 'string' ? config : JSON.stringify(config)
  const number = (name: string): number | undefined =>
    count(Number(new RegExp(`["']?\\b${name}\\b["']?\\s*[:=]\\s*["']?(\\d+)`).exec(printed)?.[1]))
  return {
    family: 'vllm',
    version: undefined,
    blockSizeTokens: number('block_size'),
    maxBatchedTokens: number('max_num_batched_tokens'),
    kvTokens: undefined,
    ranks: undefined,
    eventSources: [],
  }
}

/** A name is looked for where one begins: in the middle of a long one, too, would take its square. */
function labelsOf(line: string): Readonly<Record<string, string>> {
  const labels: Record<string, string> = {}
  const found = line
    .slice(0, LABELS_CHARACTERS_MAX)
    .matchAll(/(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"/g)
  for (const [, name, value] of found) labels[name!] = value!
  return labels
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** A name that the router shows and logs: one that steers a terminal, or has a megabyte, is none. */
function shortText(value: unknown): string | undefined {
  const found = text(value)
  return found !== undefined && found.length <= LISTED_CHARACTERS_MAX && isShown(found) ? found : undefined
}

/** A whole number of at least 1. */
function count(value: unknown): number | undefined {
  const number = whole(value)
  return number !== undefined && number >= 1 ? number : undefined
}

/** A count of ranks that an engine can have. */
function rankCount(value: unknown): number | undefined {
  const ranks = count(value)
  return ranks !== undefined && ranks <= RANKS_MAX ? ranks : undefined
}

/** A whole number of at least 0. */
function whole(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined
}
