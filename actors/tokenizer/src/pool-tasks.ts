/**
 * The work of the pool's threads, and what they answer.
 *
 * A thread keeps one reader. Exceptions of a task are caught there and travel as records, because an error class does not
 * survive the way back.
 */

import { isMainThread, workerData } from 'node:worker_threads'
import type { ErrorRecord } from '@homing/base'
import type { HashNamespace } from '@homing/blocks'
import type { LoadedTokenizer } from '@homing/tokenization'
import { BodyReader, type BodyReaderOptions } from './body-reader.ts'
import type { CompletionRoute, ReadRequest, ReadResult } from './messages.ts'
import type { ModelTable } from './model-table.ts'

/** What every reader must know; sent to a thread when it changes, not with each task. */
export interface ReaderConfiguration {
  /** Of two, the greater is the newer one. */
  readonly version: number
  readonly table: ModelTable
  /** By directory: what one thread has loaded for all. A reader loads others by itself. */
  readonly tokenizers: ReadonlyMap<string, LoadedTokenizer>
  /** Directories whose ids were seen to differ from an engine's: engines are asked instead. */
  readonly distrusted: ReadonlySet<string>
}

export interface ReadTask {
  readonly type: 'read'
  readonly route: CompletionRoute
  readonly body: Uint8Array
  readonly headers: Readonly<Record<string, string>>
  readonly wantTokenIds: boolean
  /** Of the configuration that it needs. */
  readonly version: number
  /** Unix milliseconds, for templates that print the date. */
  readonly wallMs: number
  /** Why no engine is to be asked for this request any more; undefined: one may be. */
  readonly unaskable: string | undefined
}

/** The ids of a prompt, and the question that makes an engine tell its own. */
export interface CheckTask extends Omit<ReadTask, 'type'> {
  readonly type: 'check'
}

export interface HashTask {
  readonly type: 'hash'
  /** Body of the `/tokenize` reply. */
  readonly reply: Uint8Array
  /** What `read` knew already. */
  readonly request: ReadRequest
  readonly namespace: HashNamespace
  readonly wantTokenIds: boolean
}

export type PoolTask =
  | ReadTask
  | CheckTask
  | HashTask
  | { readonly type: 'configure'; readonly configuration: ReaderConfiguration }
  /** Loads a tokenizer for all threads. */
  | { readonly type: 'load'; readonly directory: string }

export type PoolOutcome =
  | ReadResult
  | {
      readonly kind: 'ask-engine'
      /** Everything but the prompt. */
      readonly request: ReadRequest
      readonly namespace: HashNamespace
      /** Body for `/tokenize`: the client's own members, as bytes. */
      readonly tokenizeBody: Uint8Array
      readonly origins: readonly string[]
      /** Why this thread cannot tokenize it. */
      readonly why: string
    }
  | {
      readonly kind: 'check'
      readonly model: string
      readonly directory: string
      readonly tokenIds: Int32Array
      readonly tokenizeBody: Uint8Array
      readonly origins: readonly string[]
      /** Stands for the body in reports, since that must not be told. */
      readonly bodyHash: string
    }
  /** No engine can be asked for this prompt, or it is not one that was tokenized here. */
  | { readonly kind: 'uncheckable' }
  /** The reader has an older configuration than the task needs, or none. */
  | { readonly kind: 'unconfigured' }
  | { readonly kind: 'configured' }
  | { readonly kind: 'loaded'; readonly loaded: LoadedTokenizer }
  /** `mayComeBack`: this machine lacked something. */
  | { readonly kind: 'notLoaded'; readonly error: ErrorRecord; readonly mayComeBack: boolean }

const reader = isMainThread ? undefined : new BodyReader(workerData as BodyReaderOptions)

/** The first task of a thread: its answer shows that the thread runs. */
export function startThread(): void {}

export interface ThreadAnswer {
  readonly outcome: PoolOutcome
  /** Bytes of what the thread remembers. */
  readonly cacheBytes: number
  /** Bytes of the words that its tokenizers have seen. */
  readonly wordTableBytes: number
}

/** Every other task of the pool's threads. Never throws. */
export async function runPoolTask(task: PoolTask): Promise<ThreadAnswer> {
  const outcome = await reader!.run(task)
  return {
    outcome: withoutShared(outcome),
    cacheBytes: reader!.bytes,
    wordTableBytes: reader!.wordTableBytes,
  }
}

/** The memory that the body came in is used for others as soon as this is told. */
function withoutShared(outcome: PoolOutcome): PoolOutcome {
  if (outcome.kind !== 'read' && outcome.kind !== 'ask-engine') return outcome
  const { upstreamBody } = outcome.request
  if (upstreamBody === undefined || !(upstreamBody.buffer instanceof SharedArrayBuffer)) return outcome
  return { ...outcome, request: { ...outcome.request, upstreamBody: upstreamBody.slice() } }
}
