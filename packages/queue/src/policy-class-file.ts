/**
 * Class file: the policy classes of all models, as operators write them in YAML.
 *
 *   default_policy_family: chat
 *   uncached_isl_buckets:
 *     - { min_tokens: 0, bucket: short }
 *     - { min_tokens: 8192, bucket: long }
 *   policy_classes:
 *     - { name: chat_short, policy_family: chat, cache_bucket: short, queue_policy: fcfs, quantum: 8192 }
 *     - { name: chat_long, policy_family: chat, cache_bucket: long, queue_policy: wspt, quantum: 2048 }
 *   models:
 *     some-model: { … }        the same three fields; they replace all of the above for this model
 *
 * The error lists all faults of a file, each with its line. Source: the file of Dynamo's
 * `--router-policy-config`.
 */

import { createRequire } from 'node:module'
import { CodedError, LIST_CHARACTERS_MAX } from '@homing/base'
import type * as yaml from 'yaml'
import { QUEUE_ORDERS, type QueueOrder } from './orders.ts'
import type { PolicyClass, PolicyProfile, UncachedBucket } from './policy-classes.ts'

export interface PolicyFile {
  /** Profile of models without their own; undefined: the file has none. */
  readonly profile: PolicyProfile | undefined
  readonly models: ReadonlyMap<string, PolicyProfile>
}

/** A class file cannot be used; `faults` has every fault found, each with its line. */
export class BadPolicyClassesError extends CodedError {
  readonly code = 'HOMING_QUEUE_BAD_POLICY_CLASSES'
  readonly faults: readonly string[]

  constructor(path: string, faults: readonly string[]) {
    const list = faults.length === 1 ? ` ${faults[0]}` : faults.map(fault => `\n  ${fault}`).join('')
    super(
      `cannot use the policy classes of ${path}:${list}`,
      { path, faultCount: faults.length },
      { charactersMax: LIST_CHARACTERS_MAX },
    )
    this.faults = faults
  }
}

const NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/
const CLASSES_MAX = 256
const MODELS_MAX = 1024
const PROFILE_FIELDS = ['default_policy_family', 'uncached_isl_buckets', 'policy_classes'] as const
const BUCKET_FIELDS = ['min_tokens', 'bucket'] as const
const CLASS_FIELDS = [
  'name',
  'policy_family',
  'cache_bucket',
  'queue_policy',
  'quantum',
  'prefill_busy_threshold',
  'prefill_busy_threshold_frac',
  'request_queue_limit_per_worker',
  'raw_isl_token_queue_limit_per_worker',
  'cached_token_queue_limit_per_worker',
] as const

/** A value of the file and its line. */
interface Value {
  readonly node: yaml.Node
  readonly line: number
  /** Its name in faults. */
  readonly what: string
}

/**
 * Reads the text of a class file; `path` is its name in the error, `order` the order of classes without
 * `queue_policy`.
 */
export function parsePolicyClasses(text: string, path: string, order: QueueOrder = 'fcfs'): PolicyFile {
  const reader = new FileReader(text, order)
  const file = reader.file()
  if (file === undefined || reader.faults.length > 0) throw new BadPolicyClassesError(path, reader.faults)
  return file
}

class FileReader {
  readonly faults: string[] = []
  /** Loaded here: 72 modules, which a router without such a file does without. */
  readonly #yaml = createRequire(import.meta.url)('yaml') as typeof yaml
  readonly #lines = new this.#yaml.LineCounter()
  readonly #order: QueueOrder
  readonly #document: ReturnType<typeof yaml.parseDocument>

  constructor(text: string, order: QueueOrder) {
    this.#order = order
    this.#document = this.#yaml.parseDocument(text, { lineCounter: this.#lines, prettyErrors: false })
  }

  file(): PolicyFile | undefined {
    for (const { message, pos } of this.#document.errors) {
      this.faults.push(`line ${this.#lines.linePos(pos[0]).line}: ${message.split('\n', 1)[0]}`)
    }
    if (this.faults.length > 0) return undefined
    const contents = this.#document.contents as yaml.Node | null
    if (contents === null) {
      this.faults.push('it is empty')
      return undefined
    }
    const root = { node: contents, line: 1, what: 'the file' }
    const fields = this.#fields(root, [...PROFILE_FIELDS, 'models'])
    if (fields === undefined) return undefined
    const models = this.#models(fields.get('models'))
    fields.delete('models')
    return { profile: fields.size === 0 && models.size > 0 ? undefined : this.#profile(root, fields), models }
  }

  #models(value: Value | undefined): Map<string, PolicyProfile> {
    const profiles = new Map<string, PolicyProfile>()
    const models = value && this.#fields(value, undefined)
    if (models === undefined) return profiles
    if (models.size > MODELS_MAX) this.#fault(value!, `has more than ${MODELS_MAX} models`)
    for (const [name, model] of models) {
      const fields = this.#fields(model, PROFILE_FIELDS)
      const profile = fields && this.#profile(model, fields)
      if (profile !== undefined) profiles.set(name, profile)
    }
    return profiles
  }

  #profile(value: Value, fields: ReadonlyMap<string, Value>): PolicyProfile | undefined {
    const faultsBefore = this.faults.length
    const defaultFamily = this.#name(this.#needed(value, fields, 'default_policy_family'))
    const buckets = this.#buckets(this.#needed(value, fields, 'uncached_isl_buckets'))
    const classes = this.#classes(this.#needed(value, fields, 'policy_classes'), buckets)
    if (defaultFamily === undefined || buckets === undefined || classes === undefined) return undefined
    // Checks across the parts need parts that are valid by themselves.
    if (this.faults.length > faultsBefore) return undefined
    this.#checkFamilies(fields.get('policy_classes')!, classes, buckets)
    if (!classes.some(({ family }) => family === defaultFamily)) {
      this.#fault(fields.get('default_policy_family')!, `is ${defaultFamily}, which no class has`)
    }
    return { defaultFamily, buckets, classes }
  }

  #buckets(value: Value | undefined): UncachedBucket[] | undefined {
    const items = this.#items(value)
    if (items === undefined) return undefined
    const buckets: UncachedBucket[] = []
    for (const item of items) {
      const fields = this.#fields(item, BUCKET_FIELDS)
      if (fields === undefined) return undefined
      const tokensMin = this.#whole(this.#needed(item, fields, 'min_tokens'), 0)
      const name = this.#name(this.#needed(item, fields, 'bucket'))
      if (tokensMin === undefined || name === undefined) return undefined
      const last = buckets.at(-1)
      if (last === undefined && tokensMin !== 0)
        this.#fault(fields.get('min_tokens')!, 'of the first is not 0')
      if (last !== undefined && tokensMin <= last.tokensMin) {
        this.#fault(fields.get('min_tokens')!, `is ${tokensMin}, not above the ${last.tokensMin} before it`)
      }
      if (buckets.some(bucket => bucket.name === name))
        this.#fault(fields.get('bucket')!, `${name} is there twice`)
      buckets.push({ tokensMin, name })
    }
    return buckets
  }

  #classes(
    value: Value | undefined,
    buckets: readonly UncachedBucket[] | undefined,
  ): PolicyClass[] | undefined {
    const items = this.#items(value)
    if (items === undefined) return undefined
    if (items.length > CLASSES_MAX) this.#fault(value!, `has more than ${CLASSES_MAX} classes`)
    const classes: PolicyClass[] = []
    for (const item of items) {
      const fields = this.#fields(item, CLASS_FIELDS)
      const policyClass = fields && this.#class(item, fields)
      if (policyClass === undefined) continue
      const { name, family, cacheBucket } = policyClass
      if (classes.some(other => other.name === name)) this.#fault(item, `there is another class ${name}`)
      if ((family === undefined) !== (cacheBucket === undefined)) {
        this.#fault(item, `class ${name} has one of policy_family and cache_bucket: give both or neither`)
      }
      if (cacheBucket !== undefined && buckets?.every(bucket => bucket.name !== cacheBucket)) {
        this.#fault(fields!.get('cache_bucket')!, `is ${cacheBucket}, which is not in uncached_isl_buckets`)
      }
      classes.push(policyClass)
    }
    return classes
  }

  #class(item: Value, fields: ReadonlyMap<string, Value>): PolicyClass | undefined {
    const name = this.#name(this.#needed(item, fields, 'name'))
    const family = this.#name(fields.get('policy_family'))
    const cacheBucket = this.#name(fields.get('cache_bucket'))
    const order = this.#orderOf(fields.get('queue_policy'))
    const quantum = this.#whole(this.#needed(item, fields, 'quantum'), 1)
    const busyTokens = this.#whole(fields.get('prefill_busy_threshold'), 0)
    const busyFraction = this.#fraction(fields.get('prefill_busy_threshold_frac'))
    const requestsPerWorker = this.#whole(fields.get('request_queue_limit_per_worker'), 0)
    const promptTokensPerWorker = this.#whole(fields.get('raw_isl_token_queue_limit_per_worker'), 0)
    const cachedTokensPerWorker = this.#whole(fields.get('cached_token_queue_limit_per_worker'), 0)
    if (name === undefined || quantum === undefined) return undefined
    return {
      name,
      family,
      cacheBucket,
      order,
      quantum,
      busyTokens,
      busyFraction,
      requestsPerWorker,
      promptTokensPerWorker,
      cachedTokensPerWorker,
    }
  }

  /** Checks that every family has exactly one class for every bucket. */
  #checkFamilies(value: Value, classes: readonly PolicyClass[], buckets: readonly UncachedBucket[]): void {
    const families = new Set(classes.map(({ family }) => family).filter(family => family !== undefined))
    for (const family of families) {
      for (const { name } of buckets) {
        const count = classes.filter(other => other.family === family && other.cacheBucket === name).length
        if (count !== 1) {
          this.#fault(value, `has ${count} classes of family ${family} for bucket ${name}: it needs one`)
        }
      }
    }
  }

  /** The fields of a map by name; a field that is not in `known` is a fault. */
  #fields(value: Value, known: readonly string[] | undefined): Map<string, Value> | undefined {
    const node = this.#resolved(value.node)
    if (!this.#yaml.isMap(node)) {
      this.#fault(value, 'is no list of names and values')
      return undefined
    }
    const fields = new Map<string, Value>()
    for (const { key, value: given } of node.items) {
      const line = this.#lineOf(key as yaml.Node)
      const name = String(this.#yaml.isScalar(key) ? key.value : key)
      if (known !== undefined && !known.includes(name)) {
        this.faults.push(
          `line ${line}: ${name} is no field of ${value.what}; the fields are ${known.join(', ')}`,
        )
      } else if (given === null || (this.#yaml.isScalar(given) && given.value === null)) {
        this.faults.push(`line ${line}: ${name} has no value`)
      } else {
        fields.set(name, { node: given as yaml.Node, line, what: name })
      }
    }
    return fields
  }

  #items(value: Value | undefined): Value[] | undefined {
    if (value === undefined) return undefined
    const node = this.#resolved(value.node)
    if (!this.#yaml.isSeq(node) || node.items.length === 0) {
      this.#fault(value, 'is no list with at least one item')
      return undefined
    }
    return node.items.map(item => {
      return {
        node: item as yaml.Node,
        line: this.#lineOf(item as yaml.Node),
        what: `an item of ${value.what}`,
      }
    })
  }

  #needed(value: Value, fields: ReadonlyMap<string, Value>, name: string): Value | undefined {
    const field = fields.get(name)
    if (field === undefined) this.#fault(value, `has no ${name}`)
    return field
  }

  #name(value: Value | undefined): string | undefined {
    const given = this.#scalar(value)
    if (value === undefined || given === undefined) return undefined
    if (typeof given === 'string' && NAME.test(given)) return given
    this.#fault(value, `is ${quoted(given)}, not a name: a letter, then letters, digits, _ and -, 64 at most`)
    return undefined
  }

  #orderOf(value: Value | undefined): QueueOrder {
    const given = this.#scalar(value)
    if (value === undefined || given === undefined) return this.#order
    const order = QUEUE_ORDERS.find(known => known === given)
    if (order === undefined) this.#fault(value, `is ${quoted(given)}, not one of ${QUEUE_ORDERS.join(', ')}`)
    return order ?? this.#order
  }

  #whole(value: Value | undefined, min: number): number | undefined {
    const given = this.#scalar(value)
    if (value === undefined || given === undefined) return undefined
    if (typeof given === 'number' && Number.isSafeInteger(given) && given >= min) return given
    this.#fault(value, `is ${quoted(given)}, not a whole number ≥ ${min}`)
    return undefined
  }

  #fraction(value: Value | undefined): number | undefined {
    const given = this.#scalar(value)
    if (value === undefined || given === undefined) return undefined
    if (typeof given === 'number' && given >= 0 && given < Number.POSITIVE_INFINITY) return given
    this.#fault(value, `is ${quoted(given)}, not a number ≥ 0`)
    return undefined
  }

  #scalar(value: Value | undefined): unknown {
    if (value === undefined) return undefined
    const node = this.#resolved(value.node)
    if (this.#yaml.isScalar(node)) return node.value
    this.#fault(value, 'is not a single value')
    return undefined
  }

  #resolved(node: yaml.Node): unknown {
    return this.#yaml.isAlias(node) ? node.resolve(this.#document) : node
  }

  #lineOf(node: yaml.Node | null): number {
    return this.#lines.linePos(node?.range?.[0] ?? 0).line
  }

  #fault({ line, what }: Value, why: string): void {
    this.faults.push(`line ${line}: ${what} ${why}`)
  }
}

function quoted(given: unknown): string {
  return typeof given === 'number' ? String(given) : JSON.stringify(given)
}
