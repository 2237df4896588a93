/**
 * The lines of a decision log: what the router writes for every settled request, and how it is read again.
 *
 *   header     {"decision_log":1,"life":"…","unix_ms":…,"timestamp":…,"selection":{…},"workers":[…]}
 *   request    {"timestamp":…,"input_length":…,"output_length":…,"hash_ids":[…],"model":…,"worker":…, …}
 *   loss       {"dropped_requests":17}
 *
 * A header begins every file, and comes again when the fleet has changed. A request line is a line of a trace
 * (trace-request.ts): one number per block of the prompt, the partial last one included, at the block size
 * that the line names. The numbers stand for hashes that are not in the log. Lines come in the order of
 * settlement, so timestamps go back.
 *
 * There is no text and no token id in a line. Names of models and of workers are there as operators gave
 * them.
 */

import { parseJson } from '@homing/base'

/** Version of the format; a reader refuses others. */
export const DECISION_LOG_VERSION = 1
/** What every file begins with. */
const LOG_BEGINNING = '{"decision_log":'

/** A worker key as a simulation must know it. */
export interface LoggedWorker {
  /** `<worker id>/<dp rank>`. */
  readonly key: string
  readonly models: readonly string[]
  /** Undefined: not known. */
  readonly blockTokens: number | undefined
  /** Blocks that its cache has room for; undefined: not known. */
  readonly kvBlocks: number | undefined
  /** Most tokens that it computes in one step. */
  readonly stepTokensMax: number
  /** False: it takes no requests from here on. */
  readonly isUp: boolean
}

/** How the router chooses. */
export interface LoggedSelection {
  readonly mode: string
  readonly policy: string
  readonly overlapWeight: number
  readonly temperature: number
  /** The router follows KV events. */
  readonly followsEvents: boolean
}

/** The settings of a router that say how it chooses. */
export interface SelectionInForce {
  readonly routerMode: string
  readonly routerPolicy: string
  readonly overlapWeight: number
  readonly temperature: number
  readonly kvEvents: boolean
}

/** `customPolicy`: name of the selection that takes the place of the policy; undefined: none does. */
export function loggedSelection(
  settings: SelectionInForce,
  customPolicy: string | undefined,
): LoggedSelection {
  return {
    mode: settings.routerMode,
    policy: customPolicy ?? settings.routerPolicy,
    overlapWeight: settings.overlapWeight,
    temperature: settings.temperature,
    followsEvents: settings.kvEvents,
  }
}

export interface LogHeader {
  /** Numbers of blocks and sessions mean the same in lines of one life only: in all files that it wrote. */
  readonly life: string
  /** Unix milliseconds at timestamp 0. */
  readonly originMs: number
  /** Since when it holds, from the origin. */
  readonly timestampMs: number
  readonly selection: LoggedSelection
  readonly workers: readonly LoggedWorker[]
}

/** `refused`: there was no place for it. `aborted`: its client left, or its gateway ended. */
export type LoggedOutcome = 'ok' | 'error' | 'aborted' | 'refused'

/** What the numbers of a prompt are worth: its blocks, pieces of its text, or nothing at all. */
export type PromptKnowledge = 'tokens' | 'text' | 'none'

export interface LoggedRequest {
  /** Arrival, milliseconds from the origin of the header. */
  readonly timestampMs: number
  readonly inputTokens: number
  /** 0: not known. */
  readonly outputTokens: number
  readonly blockTokens: number
  readonly hashIds: ArrayLike<number>
  /** A number, like those of blocks. */
  readonly sessionId: string | undefined
  readonly model: string
  /** Undefined: it had no place. */
  readonly worker: string | undefined
  /** What chose: a policy of the cost, or the mode where that has none. */
  readonly policy: string
  readonly predictedTokens: number
  /** Undefined: the engine does not report it. */
  readonly cachedTokens: number | undefined
  /** From its arrival to the call of a worker, or to its end where none was called. */
  readonly routerMs: number
  /** From its arrival; undefined: the answer was no stream, or none came. */
  readonly firstTokenMs: number | undefined
  /** From its arrival to its end. */
  readonly totalMs: number
  readonly outcome: LoggedOutcome
  /** Code of the error; undefined: there was none. */
  readonly error: string | undefined
  /** Workers that it was tried on, the last included. */
  readonly attempts: number
  /** False: no worker has ever worked on it. */
  readonly wasTaken: boolean
  readonly knowledge: PromptKnowledge
}

export type DecisionLogLine =
  | { readonly kind: 'header'; readonly header: LogHeader }
  | { readonly kind: 'request'; readonly request: LoggedRequest }
  | { readonly kind: 'loss'; readonly requests: number }

/** With its line end. */
export function headerLine(header: LogHeader): string {
  const { life, originMs, timestampMs, selection, workers } = header
  return line({
    decision_log: DECISION_LOG_VERSION,
    life,
    unix_ms: Math.round(originMs),
    timestamp: Math.max(0, Math.round(timestampMs)),
    selection: {
      mode: selection.mode,
      policy: selection.policy,
      overlap_weight: selection.overlapWeight,
      temperature: selection.temperature,
      kv_events: selection.followsEvents,
    },
    workers: workers.map(worker => ({
      worker: worker.key,
      models: worker.models,
      block_size: worker.blockTokens ?? null,
      kv_blocks: worker.kvBlocks ?? null,
      max_batched_tokens: worker.stepTokensMax,
      up: worker.isUp,
    })),
  })
}

/** With its line end. Fields that say nothing are left out. */
export function requestLine(request: LoggedRequest): string {
  const { sessionId, error, attempts, wasTaken, knowledge } = request
  return line({
    timestamp: Math.max(0, Math.round(request.timestampMs)),
    input_length: request.inputTokens,
    output_length: request.outputTokens,
    hash_ids: Array.from(request.hashIds),
    block_size: request.blockTokens,
    ...(sessionId === undefined ? {} : { session_id: sessionId }),
    model: request.model,
    worker: request.worker ?? null,
    policy: request.policy,
    predicted_tokens: request.predictedTokens,
    cached_tokens: request.cachedTokens ?? null,
    router_ms: microseconds(request.routerMs),
    ttft_ms: request.firstTokenMs === undefined ? null : microseconds(request.firstTokenMs),
    total_ms: microseconds(request.totalMs),
    outcome: request.outcome,
    ...(error === undefined ? {} : { error }),
    ...(attempts === 1 ? {} : { attempts }),
    ...(wasTaken ? {} : { taken: false }),
    ...(knowledge === 'tokens' ? {} : { prompt: knowledge }),
  })
}

/** Requests that have no line, with its line end. */
export function lossLine(requests: number): string {
  return line({ dropped_requests: requests })
}

/** Reads a line. A text answers why it cannot be read. */
export function readLogLine(text: string): DecisionLogLine | string {
  let value: unknown
  try {
    value = parseJson(text)
  } catch {
    return 'it is not JSON'
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'it is not a JSON object'
  const fields = new Fields(value as Record<string, unknown>)
  const read = readFields(fields)
  return fields.fault ?? read
}

/** Whether a text is a decision log of any version, or the beginning of one; an empty text is. */
export function beginsAsDecisionLog(text: string): boolean {
  return text.startsWith(LOG_BEGINNING) || LOG_BEGINNING.startsWith(text)
}

function readFields(fields: Fields): DecisionLogLine | string {
  if (fields.has('dropped_requests')) return { kind: 'loss', requests: fields.integer('dropped_requests') }
  if (fields.has('decision_log')) {
    const version = fields.integer('decision_log')
    if (version !== DECISION_LOG_VERSION)
      return `decision_log is ${version}, and this program reads ${DECISION_LOG_VERSION}`
    return { kind: 'header', header: readHeader(fields) }
  }
  const inputTokens = fields.integer('input_length')
  const blockTokens = fields.size('block_size')
  const hashIds = fields.integers('hash_ids')
  if (fields.fault === undefined && hashIds.length !== Math.ceil(inputTokens / blockTokens))
    return `${hashIds.length} hash_ids for ${inputTokens} tokens in blocks of ${blockTokens}`
  return {
    kind: 'request',
    request: {
      timestampMs: fields.integer('timestamp'),
      inputTokens,
      outputTokens: fields.integer('output_length'),
      blockTokens,
      hashIds,
      sessionId: fields.optional('session_id', name => fields.text(name)),
      model: fields.text('model'),
      worker: fields.optional('worker', name => fields.text(name)),
      policy: fields.text('policy'),
      predictedTokens: fields.integer('predicted_tokens'),
      cachedTokens: fields.optional('cached_tokens', name => fields.integer(name)),
      routerMs: fields.number('router_ms'),
      firstTokenMs: fields.optional('ttft_ms', name => fields.number(name)),
      totalMs: fields.number('total_ms'),
      outcome: fields.choice('outcome', OUTCOMES),
      error: fields.optional('error', name => fields.text(name)),
      attempts: fields.optional('attempts', name => fields.integer(name)) ?? 1,
      wasTaken: fields.optional('taken', name => fields.flag(name)) ?? true,
      knowledge: fields.optional('prompt', name => fields.choice(name, KNOWLEDGE)) ?? 'tokens',
    },
  }
}

/** How a request may end. */
export const OUTCOMES = ['ok', 'error', 'aborted', 'refused'] as const
/** What a router may know of a prompt. */
export const KNOWLEDGE = ['tokens', 'text', 'none'] as const

function readHeader(fields: Fields): LogHeader {
  const selection = fields.object('selection')
  const header: LogHeader = {
    life: fields.text('life'),
    originMs: fields.number('unix_ms'),
    timestampMs: fields.integer('timestamp'),
    selection: {
      mode: selection.text('mode'),
      policy: selection.text('policy'),
      overlapWeight: selection.number('overlap_weight'),
      temperature: selection.number('temperature'),
      followsEvents: selection.flag('kv_events'),
    },
    workers: fields.objects('workers').map(worker => ({
      key: worker.text('worker'),
      models: worker.texts('models'),
      blockTokens: worker.optional('block_size', name => worker.size(name)),
      kvBlocks: worker.optional('kv_blocks', name => worker.integer(name)),
      stepTokensMax: worker.integer('max_batched_tokens'),
      isUp: worker.flag('up'),
    })),
  }
  return header
}

/** The members of a JSON object; the first that is not of its kind is the fault. */
class Fields {
  readonly #members: Readonly<Record<string, unknown>>
  readonly #root: Fields
  fault: string | undefined

  constructor(members: Readonly<Record<string, unknown>>, root?: Fields) {
    this.#members = members
    this.#root = root ?? this
  }

  has(name: string): boolean {
    return Object.hasOwn(this.#members, name)
  }

  /** Undefined where it is missing or null. */
  optional<T>(name: string, read: (name: string) => T): T | undefined {
    return this.#members[name] === undefined || this.#members[name] === null ? undefined : read(name)
  }

  integer(name: string): number {
    return this.#take(name, isCount, 0, 'an integer ≥ 0')
  }

  size(name: string): number {
    return this.#take(name, value => isCount(value) && value > 0, 1, 'an integer ≥ 1')
  }

  number(name: string): number {
    return this.#take(name, isNumber, 0, 'a number ≥ 0')
  }

  text(name: string): string {
    return this.#take(name, value => typeof value === 'string', '', 'a text')
  }

  flag(name: string): boolean {
    return this.#take(name, value => typeof value === 'boolean', false, 'true or false')
  }

  choice<T extends string>(name: string, choices: readonly T[]): T {
    const isOne = (value: unknown): boolean => choices.some(one => one === value)
    return this.#take(name, isOne, choices[0]!, `one of ${choices.join(', ')}`)
  }

  integers(name: string): readonly number[] {
    return this.#list(name, isCount, 'a list of integers ≥ 0')
  }

  texts(name: string): readonly string[] {
    return this.#list(name, value => typeof value === 'string', 'a list of texts')
  }

  object(name: string): Fields {
    return new Fields(this.#take(name, isObject, {}, 'an object'), this.#root)
  }

  objects(name: string): readonly Fields[] {
    const objects: readonly Readonly<Record<string, unknown>>[] = this.#list(
      name,
      isObject,
      'a list of objects',
    )
    return objects.map(object => new Fields(object, this.#root))
  }

  #list<T>(name: string, isOne: (value: unknown) => boolean, what: string): readonly T[] {
    return this.#take<readonly T[]>(name, value => Array.isArray(value) && value.every(isOne), [], what)
  }

  #take<T>(name: string, isOne: (value: unknown) => boolean, instead: T, what: string): T {
    const value = this.#members[name]
    if (isOne(value)) return value as T
    this.#root.fault ??= `${name} is ${value === undefined ? 'missing' : shortText(value)}; it must be ${what}`
    return instead
  }
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const SHOWN_MAX = 40

function shortText(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text
}

/** Milliseconds with three digits. */
function microseconds(ms: number): number {
  return Math.max(0, Math.round(ms * 1000) / 1000)
}

function line(value: object): string {
  return `${JSON.stringify(value)}\n`
}
