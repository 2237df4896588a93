/**
 * Settings of one simulated engine, and the table behind `pnpm start engine --help`.
 *
 * `ENGINE_OPTIONS` has the shape of the setting descriptors of @homing/config: a kind, a range, a default,
 * help. `engineSettings` fills in the defaults and refuses settings that cannot work, with all faults in one
 * error.
 */

import { CodedError, LIST_CHARACTERS_MAX } from '@homing/base'
import type { KvHashForm, ReplayForm } from '@homing/protocol'
import { BROKER_OPTIONS, type BrokerSettings, DEFAULT_BROKER_SETTINGS } from './broker-settings.ts'
import { ANSWER_FORMS, type AnswerForm } from './completion-answer.ts'
import { EVENT_FORMS, type EventForm } from './event-publisher.ts'
import { DEFAULT_HANDOVER_SETTINGS, HANDOVER_OPTIONS, type HandoverSettings } from './handover-settings.ts'
import { DEFAULT_POOL_SETTINGS, faultOfPool, POOL_OPTIONS, type PoolSettings } from './pool-settings.ts'
import {
  DEFAULT_REQUEST_PORT_SETTINGS,
  REQUEST_PORT_OPTIONS,
  type RequestPortSettings,
} from './request-port-settings.ts'
import { PROFILE_NAMES, type ProfileName, timingProfile } from './timing-profile.ts'
import { TLS_OPTIONS } from './tls-options.ts'

/** Plain data: may be sent to another thread. */
export interface EngineSettings extends BrokerSettings, HandoverSettings, PoolSettings, RequestPortSettings {
  /** Address to listen on, for HTTP and for ZeroMQ. */
  readonly host: string
  /** 0: the system picks one. */
  readonly port: number
  /** Base of the event ports: rank r publishes on base + r; 0: the system picks them. */
  readonly eventsPort: number
  /** Base of the replay ports, likewise. */
  readonly replayPort: number
  /** False: no sockets for events, and /kv_event_sources names none. */
  readonly publishesEvents: boolean
  /**
   * False: no replay socket, so published batches are not repeated, as in an engine that is not configured
   * for replay.
   */
  readonly offersReplay: boolean
  /** The name requests use. */
  readonly model: string
  /** Directory with tokenizer.json and tokenizer_config.json; undefined: the built-in byte tokenizer. */
  readonly tokenizer: string | undefined
  /** LoRA adapters, by name. */
  readonly adapters: readonly string[]
  readonly blockSizeTokens: number
  /** Physical KV blocks, one of which is never used; 0: as many as the profile's GPU has. */
  readonly blocks: number
  /** Longest request, prompt and output, in tokens; 0: 131,072 or the whole cache, whichever is less. */
  readonly contextTokensMax: number
  readonly profile: ProfileName
  /** Simulated over real time: 1 is real time, 10 ten times faster, 0 does not wait. */
  readonly speed: number
  /** Tokens in one step at most; 0: the profile's. */
  readonly stepTokensMax: number
  /** Requests running at once at most; 0: the profile's. */
  readonly sequencesMax: number
  /** Data-parallel ranks, each with its own cache and its own event sockets. */
  readonly ranks: number
  /** Seed of the generated text: engines with the same seed behave as one model. */
  readonly seed: number
  /** Seed of the engine hashes; −1: a new one in each life, so that no two engines and no two lives agree. */
  readonly hashSeed: number
  readonly eventForm: EventForm
  readonly hashForm: KvHashForm
  readonly replayForm: ReplayForm
  readonly topic: string
  /** Batches kept for replay. */
  readonly replayBatchesMax: number
  /** Publishes a clear with the next step only, as vLLM does; false: at once, as SGLang does. */
  readonly isClearLate: boolean
  /** Reports the eviction of each copy of a block, as vLLM does, or only of the last one. */
  readonly removals: 'each' | 'last'
  /** Key that the /v1 routes require; '' requires none. */
  readonly apiKey: string
  /** File with that key, instead of `apiKey`; undefined: none. */
  readonly apiKeyFile: string | undefined
  /** Files in PEM with the certificate and the private key of https; undefined: plain HTTP. Both or none. */
  readonly tlsCertificateFile: string | undefined
  readonly tlsKeyFile: string | undefined
  /** Where streams have their fingerprint and their usage. */
  readonly answerForm: AnswerForm
  /** What /version answers. */
  readonly version: string
}

export const DEFAULT_ENGINE_SETTINGS: EngineSettings = {
  host: '127.0.0.1',
  port: 8001,
  eventsPort: 5557,
  replayPort: 6557,
  publishesEvents: true,
  offersReplay: true,
  ...DEFAULT_BROKER_SETTINGS,
  ...DEFAULT_REQUEST_PORT_SETTINGS,
  model: 'homing-sim',
  tokenizer: undefined,
  adapters: [],
  blockSizeTokens: 16,
  blocks: 0,
  contextTokensMax: 0,
  profile: 'h100-8b',
  speed: 1,
  stepTokensMax: 0,
  sequencesMax: 0,
  ranks: 1,
  seed: 0,
  hashSeed: -1,
  eventForm: 'vllm-map',
  hashForm: 'int',
  replayForm: 'topic',
  topic: '',
  replayBatchesMax: 10_000,
  isClearLate: true,
  removals: 'each',
  apiKey: '',
  apiKeyFile: undefined,
  tlsCertificateFile: undefined,
  tlsKeyFile: undefined,
  answerForm: 'vllm',
  version: '0.32.0',
  ...DEFAULT_HANDOVER_SETTINGS,
  ...DEFAULT_POOL_SETTINGS,
}

/** Options of the command line; `key` names the property of `EngineSettings`. */
export const ENGINE_OPTIONS = [
  {
    key: 'host',
    name: 'host',
    group: 'Addresses',
    kind: 'text',
    default: '127.0.0.1',
    placeholder: 'ADDRESS',
    env: 'HOMING_ENGINE_HOST',
    // An IPv6 address may be given as it stands in a URL.
    read: (text: string): string => text.replace(/^\[(.*)\]$/, '$1'),
    help: 'Address to listen on, for HTTP and for KV events.',
  },
  {
    key: 'port',
    name: 'port',
    group: 'Addresses',
    kind: 'integer',
    default: 8001,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port',
    env: 'HOMING_ENGINE_PORT',
    help: 'Port of the OpenAI-compatible HTTP interface.',
  },
  {
    key: 'eventsPort',
    name: 'events-port',
    group: 'Addresses',
    kind: 'integer',
    default: 5557,
    min: 0,
    max: 65_535,
    zeroMeans: 'free ports',
    env: 'HOMING_ENGINE_EVENTS_PORT',
    help: 'First port on which KV events are published (ZeroMQ PUB); rank r uses this port + r.',
  },
  {
    key: 'replayPort',
    name: 'replay-port',
    group: 'Addresses',
    kind: 'integer',
    default: 6557,
    min: 0,
    max: 65_535,
    zeroMeans: 'free ports',
    env: 'HOMING_ENGINE_REPLAY_PORT',
    help: 'First port on which missed KV events are repeated (ZeroMQ ROUTER); rank r uses this port + r.',
  },
  {
    key: 'apiKey',
    name: 'api-key',
    group: 'Addresses',
    kind: 'text',
    default: '',
    placeholder: 'KEY',
    env: 'HOMING_ENGINE_API_KEY',
    help: 'Key that the routes under /v1 require, as `Authorization: Bearer KEY`. Empty: none.',
  },
  {
    key: 'apiKeyFile',
    name: 'api-key-file',
    group: 'Addresses',
    kind: 'text',
    default: undefined,
    unsetMeans: 'none',
    placeholder: 'FILE',
    env: 'HOMING_ENGINE_API_KEY_FILE',
    help: 'File that holds that key and nothing else. Command lines can be read by everybody on the machine; files need not.',
  },
  ...TLS_OPTIONS,
  ...HANDOVER_OPTIONS,
  ...POOL_OPTIONS,
  {
    key: 'model',
    name: 'model',
    group: 'Model',
    kind: 'text',
    default: 'homing-sim',
    placeholder: 'NAME',
    env: 'HOMING_ENGINE_MODEL',
    help: 'Name of the served model.',
  },
  {
    key: 'tokenizer',
    name: 'tokenizer',
    group: 'Model',
    kind: 'text',
    default: undefined,
    unsetMeans: 'a built-in tokenizer of bytes and short words',
    placeholder: 'DIR',
    env: 'HOMING_ENGINE_TOKENIZER',
    help: 'Directory with tokenizer.json and tokenizer_config.json. /v1/models names it as `root`, so a router on this machine can use it too.',
  },
  {
    key: 'adapters',
    name: 'adapter',
    group: 'Model',
    kind: 'list',
    separator: 'comma',
    placeholder: 'NAME',
    unsetMeans: 'no adapters',
    env: 'HOMING_ENGINE_ADAPTERS',
    help: 'A LoRA adapter to serve beside the model. Its cache is separate.',
  },
  {
    key: 'seed',
    name: 'seed',
    group: 'Model',
    kind: 'integer',
    default: 0,
    min: 0,
    max: 2_147_483_647,
    env: 'HOMING_ENGINE_SEED',
    help: 'Seed of the generated text: every id is a function of this and of all ids before it, so engines with equal seeds behave as one model.',
  },
  {
    key: 'contextTokensMax',
    name: 'max-model-len',
    group: 'Model',
    kind: 'integer',
    default: 0,
    min: 0,
    max: 16_777_216,
    unit: 'tokens',
    zeroMeans: '131,072 or the whole cache, whichever is less',
    env: 'HOMING_ENGINE_MAX_MODEL_LEN',
    help: 'Longest request, prompt and output together.',
  },
  {
    key: 'profile',
    name: 'profile',
    group: 'Timing and size',
    kind: 'choice',
    choices: PROFILE_NAMES,
    default: 'h100-8b',
    env: 'HOMING_ENGINE_PROFILE',
    help: 'Step times and cache size: those of an H100 with Llama 3.1 8B, of four H100 with 70B, or of two other simulated engines.',
  },
  {
    key: 'speed',
    name: 'speed',
    group: 'Timing and size',
    kind: 'number',
    default: 1,
    min: 0,
    max: 1_000_000,
    zeroMeans: 'no waiting',
    env: 'HOMING_ENGINE_SPEED',
    help: 'Simulated time divided by real time: 10 is ten times faster than the profile.',
  },
  {
    key: 'blockSizeTokens',
    name: 'block-size',
    group: 'Timing and size',
    kind: 'integer',
    default: 16,
    min: 1,
    max: 4096,
    unit: 'tokens',
    env: 'HOMING_ENGINE_BLOCK_SIZE',
    help: 'Tokens in one KV block.',
  },
  {
    key: 'blocks',
    name: 'blocks',
    group: 'Timing and size',
    kind: 'integer',
    default: 0,
    min: 0,
    max: 4_194_304,
    unit: 'blocks',
    zeroMeans: 'what the profile has room for',
    aliases: ['num-gpu-blocks-override'],
    env: 'HOMING_ENGINE_BLOCKS',
    help: 'KV blocks of each rank; as in vLLM one of them is never used. With few blocks, evictions begin at once.',
  },
  {
    key: 'stepTokensMax',
    name: 'max-num-batched-tokens',
    group: 'Timing and size',
    kind: 'integer',
    default: 0,
    min: 0,
    max: 1_048_576,
    unit: 'tokens',
    zeroMeans: "the profile's",
    env: 'HOMING_ENGINE_MAX_NUM_BATCHED_TOKENS',
    help: 'Most tokens computed in one step; longer prompts are prefilled in chunks.',
  },
  {
    key: 'sequencesMax',
    name: 'max-num-seqs',
    group: 'Timing and size',
    kind: 'integer',
    default: 0,
    min: 0,
    max: 65_536,
    unit: 'requests',
    zeroMeans: "the profile's",
    env: 'HOMING_ENGINE_MAX_NUM_SEQS',
    help: 'Most requests that run at once; the others wait in order.',
  },
  {
    key: 'ranks',
    name: 'data-parallel-size',
    group: 'Timing and size',
    kind: 'integer',
    default: 1,
    min: 1,
    max: 64,
    unit: 'ranks',
    aliases: ['ranks'],
    env: 'HOMING_ENGINE_DATA_PARALLEL_SIZE',
    help: 'Data-parallel ranks, each with a cache and event sockets of its own; `X-data-parallel-rank` picks one.',
  },
  {
    key: 'publishesEvents',
    name: 'events',
    group: 'KV events',
    kind: 'flag',
    default: true,
    env: 'HOMING_ENGINE_EVENTS',
    help: 'Publish KV events. Without them, a router can only guess what this engine holds.',
  },
  {
    key: 'offersReplay',
    name: 'replay',
    group: 'KV events',
    kind: 'flag',
    default: true,
    env: 'HOMING_ENGINE_REPLAY',
    help: 'Repeat missed KV events on the replay port. If this is off, as in many engines, a router that joins late does not know the whole cache, unless a sidecar runs beside the engine (homing sidecar --help).',
  },
  ...BROKER_OPTIONS,
  ...REQUEST_PORT_OPTIONS,
  {
    key: 'eventForm',
    name: 'event-form',
    group: 'KV events',
    kind: 'choice',
    choices: EVENT_FORMS,
    default: 'vllm-map',
    env: 'HOMING_ENGINE_EVENT_FORM',
    help: 'How events are written: as vLLM from 0.24 on, vLLM from 0.21 on, vLLM 0.13 to 0.15 (which names no salts), SGLang, or SGLang before September 2026.',
  },
  {
    key: 'hashForm',
    name: 'event-hashes',
    group: 'KV events',
    kind: 'choice',
    choices: ['int', 'bytes'],
    default: 'int',
    env: 'HOMING_ENGINE_EVENT_HASHES',
    help: 'Block hashes as 64-bit integers, or as 32 raw bytes.',
  },
  {
    key: 'replayForm',
    name: 'replay-form',
    group: 'KV events',
    kind: 'choice',
    choices: ['topic', 'plain'],
    default: 'topic',
    env: 'HOMING_ENGINE_REPLAY_FORM',
    help: 'Replay answers with a topic frame (vLLM from 0.26 on), or without.',
  },
  {
    key: 'topic',
    name: 'topic',
    group: 'KV events',
    kind: 'text',
    default: '',
    placeholder: 'TEXT',
    env: 'HOMING_ENGINE_TOPIC',
    help: 'Topic of the published messages.',
  },
  {
    key: 'replayBatchesMax',
    name: 'buffer-steps',
    group: 'KV events',
    kind: 'integer',
    default: 10_000,
    min: 1,
    max: 1_000_000,
    unit: 'batches',
    env: 'HOMING_ENGINE_BUFFER_STEPS',
    help: 'Event batches kept for replay; at most 64 MiB, whatever their number.',
  },
  {
    key: 'isClearLate',
    name: 'late-clear',
    group: 'KV events',
    kind: 'flag',
    default: true,
    env: 'HOMING_ENGINE_LATE_CLEAR',
    help: 'Publish a cleared cache only with the next step, as vLLM does, and not at once, as SGLang does.',
  },
  {
    key: 'removals',
    name: 'removals',
    group: 'KV events',
    kind: 'choice',
    choices: ['each', 'last'],
    default: 'each',
    env: 'HOMING_ENGINE_REMOVALS',
    help: 'Report the eviction of each copy of a block, as vLLM does, or only of the last one.',
  },
  {
    key: 'hashSeed',
    name: 'hash-seed',
    group: 'KV events',
    kind: 'integer',
    default: -1,
    min: -1,
    max: 2_147_483_647,
    env: 'HOMING_ENGINE_HASH_SEED',
    help: 'Seed of the engine hashes; -1 takes a new one in each life of the engine.',
  },
  {
    key: 'answerForm',
    name: 'answer-form',
    group: 'Model',
    kind: 'choice',
    choices: ANSWER_FORMS,
    default: 'vllm',
    env: 'HOMING_ENGINE_ANSWER_FORM',
    help: 'Where streams have fingerprint and usage. vllm: the fingerprint in the last chunk, or in the event with usage. openai: the fingerprint in every chunk, and `usage: null` if usage is asked for. usage-in-chunks: usage in every chunk without being asked. usage-at-end: usage in an event of its own without being asked.',
  },
  {
    key: 'version',
    name: 'reported-version',
    group: 'KV events',
    kind: 'text',
    default: '0.32.0',
    placeholder: 'VERSION',
    env: 'HOMING_ENGINE_REPORTED_VERSION',
    help: 'What /version answers.',
  },
] as const

/** Some settings of an engine cannot be used. */
export class InvalidEngineSettingsError extends CodedError {
  readonly code = 'HOMING_ENGINE_INVALID_SETTINGS'

  constructor(faults: readonly string[]) {
    const list = faults.join('; ')
    super(`cannot start an engine: ${list}`, { faults: list }, { charactersMax: LIST_CHARACTERS_MAX })
  }
}

/** Settings with every 0 that stands for a computed value replaced. */
export interface ResolvedEngineSettings extends EngineSettings {
  readonly blocks: number
  readonly contextTokensMax: number
  readonly stepTokensMax: number
  readonly sequencesMax: number
}

/** Fills in defaults. Throws InvalidEngineSettingsError with all faults. */
export function engineSettings(given: Partial<EngineSettings> = {}): ResolvedEngineSettings {
  const settings: EngineSettings = { ...DEFAULT_ENGINE_SETTINGS, ...given }
  const faults: string[] = []
  for (const option of ENGINE_OPTIONS) {
    const value: unknown = settings[option.key]
    if (option.kind === 'integer' || option.kind === 'number') {
      const isNumber = typeof value === 'number' && value >= option.min && value <= option.max
      if (!isNumber || (option.kind === 'integer' && !Number.isInteger(value))) {
        faults.push(`${option.key} is ${String(value)}, use ${option.min} to ${option.max}`)
      }
    } else if (option.kind === 'choice') {
      const choices: readonly unknown[] = option.choices
      if (!choices.includes(value))
        faults.push(`${option.key} is ${String(value)}, use ${choices.join(', ')}`)
    }
  }
  if (settings.register !== '' && settings.nats.length === 0) faults.push('register needs nats')
  if (settings.durableKvEvents && settings.nats.length === 0)
    faults.push('--router-durable-kv-events needs --nats')
  if (settings.requestPlane === 'nats' && settings.register === '')
    faults.push('requestPlane nats needs register')
  if (settings.requestPlane === 'tcp' && settings.tlsCertificateFile !== undefined)
    faults.push('--request-plane tcp is not encrypted, and --tls-cert asks for https: use one of them')
  if (settings.nats.length > 0 && settings.port === 0 && settings.natsSubject === '')
    faults.push('--nats-subject is not given, and a free port (--port 0) names none: give it')
  if (settings.model === '') faults.push('model is empty')
  const poolFault = faultOfPool(settings)
  if (poolFault !== undefined) faults.push(poolFault)
  if (settings.apiKey !== '' && settings.apiKeyFile !== undefined)
    faults.push('--api-key and --api-key-file are given: use one of them')
  if ((settings.tlsCertificateFile === undefined) !== (settings.tlsKeyFile === undefined))
    faults.push('--tls-cert and --tls-key go together')
  if (settings.blocks === 1) faults.push('blocks is 1, use 2 or more: one block is never used')
  for (const name of ['eventsPort', 'replayPort'] as const) {
    const last = settings[name] + settings.ranks - 1
    if (settings[name] > 0 && last > 65_535) faults.push(`${name} of the last rank is ${last}`)
  }
  const overlap = Math.abs(settings.eventsPort - settings.replayPort)
  if (settings.publishesEvents && settings.eventsPort > 0 && overlap < settings.ranks) {
    if (settings.replayPort > 0) faults.push('the event ports and the replay ports overlap')
  }
  if (faults.length > 0) throw new InvalidEngineSettingsError(faults)

  const profile = timingProfile(settings.profile)
  const blocks =
    settings.blocks > 0
      ? settings.blocks
      : Math.floor(profile.kvCapacityTokens / settings.blockSizeTokens) + 1
  const cacheTokens = (blocks - 1) * settings.blockSizeTokens
  return {
    ...settings,
    blocks,
    contextTokensMax: Math.min(
      settings.contextTokensMax > 0 ? settings.contextTokensMax : 131_072,
      cacheTokens,
    ),
    stepTokensMax: settings.stepTokensMax > 0 ? settings.stepTokensMax : profile.stepTokensMax,
    sequencesMax: settings.sequencesMax > 0 ? settings.sequencesMax : profile.sequencesMax,
  }
}
