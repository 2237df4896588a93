/**
 * Decoders: what makes text of token ids, for each tokenizer directory, loaded once by a reader for all
 * threads.
 *
 * Owns    the tables, in shared memory, and why some could not be loaded.
 * Fails   a directory that could not be loaded is tried again with a question at least RETRY_MS later.
 */

import { type Clock, type ErrorRecord, toErrorRecord } from '@homing/base'
import type { DecoderTables } from '@homing/tokenization'
import { NoDecoderError } from './errors.ts'
import type { ReaderOutcome, ReaderTask } from './reader-tasks.ts'

export interface DecodersParts {
  readonly clock: Clock
  /** Undefined: no tokenizer is known for this model. */
  readonly directoryOf: (model: string) => string | undefined
  /** Runs a task on the thread of a reader. */
  readonly run: (task: ReaderTask) => Promise<ReaderOutcome>
}

const RETRY_MS = 10_000

export class Decoders {
  readonly #parts: DecodersParts
  readonly #tables = new Map<string, Promise<DecoderTables>>()
  readonly #failedMs = new Map<string, number>()

  constructor(parts: DecodersParts) {
    this.#parts = parts
  }

  /** Never rejects. */
  async of(model: string): Promise<DecoderTables | ErrorRecord> {
    const { clock, directoryOf } = this.#parts
    const directory = directoryOf(model)
    if (directory === undefined)
      return toErrorRecord(
        new NoDecoderError(model, 'no tokenizer is known for it; name it with --tokenizer MODEL=DIRECTORY'),
      )
    const failedMs = this.#failedMs.get(directory)
    if (failedMs !== undefined && clock.nowMs() - failedMs >= RETRY_MS) {
      this.#failedMs.delete(directory)
      this.#tables.delete(directory)
    }
    let loading = this.#tables.get(directory)
    if (loading === undefined) {
      loading = this.#load(directory)
      this.#tables.set(directory, loading)
      loading.catch(() => this.#failedMs.set(directory, clock.nowMs()))
    }
    return loading.catch((error: unknown) =>
      toErrorRecord(new NoDecoderError(model, toErrorRecord(error).message)),
    )
  }

  async #load(directory: string): Promise<DecoderTables> {
    const outcome = await this.#parts.run({ type: 'decoder', directory })
    if (outcome.kind === 'decoder') return outcome.tables
    const { message } = 'error' in outcome ? outcome.error : { message: `answered ${outcome.kind}` }
    throw new Error(message)
  }
}
