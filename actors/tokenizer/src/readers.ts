/**
 * Readers: decides which thread reads a request body, and keeps the readers' configuration.
 *
 *   body ──▶ short, and every model has the own encoder ──▶ this thread
 *        └─▶ else ──▶ a reader on its own thread
 *
 * Reading a short body costs less than sending it to a thread: a message there and back takes 0.4 ms of CPU.
 *
 * Owns     the configuration of all readers: the models, and each tokenizer as one thread has loaded it for
 *          all.
 * Bounds   this thread reads at most `inlineBodyBytesMax` bytes of one request, where four ids beside the
 *          body count as a byte of it.
 */

import { type ErrorRecord, toErrorRecord } from '@homing/base'
import { NO_ALIASES } from '@homing/fleet'
import { encoderPath, type LoadedTokenizer } from '@homing/tokenization'
import { BodyReader } from './body-reader.ts'
import type { TokenizerPath } from './messages.ts'
import type { ModelEntry, ModelTable } from './model-table.ts'
import { DISTRUSTED } from './prompt-tokens.ts'
import { sizeToRead } from './read-request.ts'
import type {
  CheckTask,
  HashTask,
  ReaderConfiguration,
  ReaderOutcome,
  ReaderTask,
  ReadTask,
} from './reader-tasks.ts'
import type { ReaderThreads } from './reader-threads.ts'

export interface ReadersOptions {
  readonly threads: ReaderThreads
  /** Longer bodies go to readers on other threads; in bytes. 0: all do. */
  readonly inlineBodyBytesMax: number
  /** For what this thread remembers of bodies and prompts. */
  readonly promptCacheBytes: number
  /** For the words that each tokenizer has seen on this thread. */
  readonly wordTableBytes: number
  /** By directory: what is loaded already. */
  readonly loaded: ReadonlyMap<string, LoadedTokenizer>
  /** As in the configuration of readers, which has them for good. */
  readonly unlistedAdaptersOf?: string | undefined
  readonly trustsTokenData?: boolean
  readonly affinityFields?: readonly string[]
  /**
   * Directories whose ids were seen to differ from an engine's; added to, so that it outlives these readers.
   */
  readonly distrusted: Set<string>
  /** A tokenizer cannot be loaded: models that need it ask an engine. */
  readonly onLoadFailed: (directory: string, error: ErrorRecord) => void
  readonly onLoaded: (loaded: LoadedTokenizer) => void
  /** The configuration has changed. */
  readonly configured?: (configuration: ReaderConfiguration) => void
}

export class Readers {
  readonly #options: ReadersOptions
  readonly #inline: BodyReader
  /** Directories that are loaded, are being loaded, or could not be. */
  readonly #asked = new Set<string>()
  #configuration: ReaderConfiguration = {
    version: 0,
    table: new Map(),
    tokenizers: new Map(),
    distrusted: new Set(),
  }
  readonly #failures = new Map<string, string>()
  #mayInline = false

  constructor(options: ReadersOptions) {
    this.#options = options
    this.#inline = new BodyReader(options)
    for (const directory of options.loaded.keys()) this.#asked.add(directory)
    const { loaded: tokenizers, unlistedAdaptersOf, trustsTokenData = false, affinityFields = [] } = options
    const distrusted = new Set(options.distrusted)
    this.#configure({ tokenizers, distrusted, unlistedAdaptersOf, trustsTokenData, affinityFields })
  }

  /** The models and their aliases from now on; loads the tokenizers that are new. */
  setModels(table: ModelTable, names = NO_ALIASES): void {
    this.#configure({ table, names })
    for (const directory of directoriesOf(table)) {
      if (this.#asked.has(directory)) continue
      this.#asked.add(directory)
      void this.#load(directory)
    }
  }

  /** As all readers have it. */
  get configuration(): ReaderConfiguration {
    return this.#configuration
  }

  /** `waitMsMax`: longest wait for a thread, in milliseconds. */
  read(task: Omit<ReadTask, 'type' | 'version'>, waitMsMax: number): Promise<ReaderOutcome> {
    const { version } = this.#configuration
    const isInline = this.#mayInline && sizeToRead(task) <= this.#options.inlineBodyBytesMax
    if (isInline) return this.#inline.run({ ...task, type: 'read', version })
    return this.#options.threads.run({ ...task, type: 'read', version }, affinityOf(task), waitMsMax)
  }

  /** Reads a prompt for comparison with its engine. */
  check(task: Omit<CheckTask, 'type' | 'version'>): Promise<ReaderOutcome> {
    const { version } = this.#configuration
    return this.#options.threads.run({ ...task, type: 'check', version }, affinityOf(task))
  }

  /** From now on engines are asked for prompts of this tokenizer. */
  distrust(directory: string): void {
    this.#options.distrusted.add(directory)
    this.#configure({ distrusted: new Set(this.#options.distrusted) })
  }

  /** The encoder of each tokenizer that a model needs. */
  get paths(): readonly TokenizerPath[] {
    const { table, tokenizers, distrusted } = this.#configuration
    return directoriesOf(table).flatMap((directory): readonly TokenizerPath[] => {
      const failure = distrusted.has(directory) ? DISTRUSTED : this.#failures.get(directory)
      const entries = [...table.values()].filter(entry => entry.tokenizerDirectory === directory)
      const models = entries.filter(entry => questionOf(entry) === undefined).map(({ name }) => name)
      const asked = entries.flatMap((entry): readonly TokenizerPath[] => {
        const why = questionOf(entry)
        return why === undefined ? [] : [{ directory, models: [entry.name], path: 'engine', reason: why }]
      })
      if (models.length === 0) return asked
      if (failure !== undefined) return [{ directory, models, path: 'engine', reason: failure }, ...asked]
      const loaded = tokenizers.get(directory)
      return loaded === undefined ? asked : [{ directory, models, ...encoderPath(loaded) }, ...asked]
    })
  }

  /** Bytes of what all readers remember of bodies and prompts. */
  get promptCacheBytes(): number {
    return this.#inline.bytes + this.#options.threads.promptCacheBytes
  }

  /** Bytes of the words that all tokenizers of all readers have seen. */
  get wordTableBytes(): number {
    return this.#inline.wordTableBytes + this.#options.threads.wordTableBytes
  }

  /** Bytes of the vocabularies and merges of the own encoder, which all readers share. */
  get vocabularyBytes(): number {
    let bytes = 0
    for (const { tables } of this.#configuration.tokenizers.values()) bytes += tables?.memory.byteLength ?? 0
    return bytes
  }

  hash(task: HashTask): Promise<ReaderOutcome> {
    return this.#options.threads.run(task)
  }

  async #load(directory: string): Promise<void> {
    const task: ReaderTask = { type: 'load', directory }
    try {
      const outcome = await this.#options.threads.run(task, this.#asked.size)
      if (outcome.kind === 'loaded') {
        const tokenizers = new Map(this.#configuration.tokenizers).set(directory, outcome.loaded)
        this.#configure({ tokenizers })
        this.#options.onLoaded(outcome.loaded)
      } else if (outcome.kind === 'notLoaded') this.#failed(directory, outcome.error, outcome.mayComeBack)
    } catch (thrown) {
      // The thread is gone, or none can be started.
      this.#failed(directory, toErrorRecord(thrown), true)
    }
  }

  /**
   * `mayComeBack`: it is tried again with the next word of the fleet, and meanwhile each reader tries for
   * itself.
   */
  #failed(directory: string, error: ErrorRecord, mayComeBack: boolean): void {
    if (mayComeBack) this.#asked.delete(directory)
    else this.#failures.set(directory, error.message)
    this.#options.onLoadFailed(directory, error)
  }

  #configure(changed: Partial<ReaderConfiguration>): void {
    const configuration = { ...this.#configuration, ...changed, version: this.#configuration.version + 1 }
    this.#configuration = configuration
    this.#inline.configure(configuration)
    this.#options.configured?.(configuration)
    this.#options.threads.configure(configuration)
    this.#mayInline = mayReadInline(configuration)
    if (this.#mayInline) this.#inline.prepare()
  }
}

/** Every model has the own encoder, so a short body costs less than a message to another thread. */
export function mayReadInline({ table, tokenizers }: ReaderConfiguration): boolean {
  return directoriesOf(table).every(directory => tokenizers.get(directory)?.tables !== undefined)
}

/** Why engines are asked for the tokens of some of its prompts; undefined: they are not. */
function questionOf({ engineTokenized }: ModelEntry): string | undefined {
  for (const [route, { why }] of engineTokenized ?? []) return `prompts of ${route}: ${why}`
  return undefined
}

function directoriesOf(table: ModelTable): readonly string[] {
  const given = [...table.values()].map(entry => entry.tokenizerDirectory)
  return [...new Set(given)].filter(directory => directory !== undefined)
}

/**
 * Equal for all turns of a conversation: a hash of the prompt's first ids, or of the body's beginning where
 * the prompt is in it. Conversations with a long common beginning share a thread until it has more to do than
 * other threads.
 */
function affinityOf({ body, promptIds }: Pick<ReadTask, 'body' | 'promptIds'>): number {
  const from = promptIds ?? body
  const count = Math.min(from.length, promptIds === undefined ? AFFINITY_BYTES : AFFINITY_IDS)
  let hash = 0
  for (let at = 0; at < count; at++) hash = Math.imul(hash ^ from[at]!, 0x01000193)
  return hash ^ (hash >>> 15)
}

const AFFINITY_BYTES = 1024
/** As many tokens as such a beginning has. */
const AFFINITY_IDS = AFFINITY_BYTES / 4
