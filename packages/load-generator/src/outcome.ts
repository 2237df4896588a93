/** What became of one request. All times in milliseconds, on one clock. */

import type { TokenCounts } from './answer-reader.ts'

/**
 * `status`: another one than 200. `answer`: 200, and an error, a cut or nothing in it. `unsent`: as many
 * waited as may. The others are failures of the connection.
 */
export type FailureKind = 'status' | 'answer' | 'timeout' | 'connect' | 'connection' | 'unsent'

export interface Failure {
  readonly kind: FailureKind
  readonly status?: number
  /** For people; without keys. */
  readonly detail: string
}

/** What a homing router says in the headers of an answer. */
export interface HomingHeaders {
  readonly worker: string
  readonly overlapBlocks: number
  readonly trust: string
}

export interface Answered extends TokenCounts {
  /** The first token; undefined: the answer was no stream. */
  readonly firstMs: number | undefined
  /** The last token, or the end of an answer that was no stream. */
  readonly lastMs: number
  /** Parts of the stream: counts where there is no usage. */
  readonly chunks: number
  readonly homing: HomingHeaders | undefined
}

export type Outcome = { readonly failure: Failure } | Answered
