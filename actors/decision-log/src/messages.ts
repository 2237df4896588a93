import type { Message, Reply } from '@homing/actor'
import type { FleetMessage } from '@homing/fleet'
import type { LoggedRequest } from '@homing/trace'

/**
 * A settled request, from the router: the content of its line, before blocks and sessions get numbers and
 * times are counted from the origin.
 */
export interface SettledRequest
  extends Omit<
    LoggedRequest,
    'timestampMs' | 'inputTokens' | 'outputTokens' | 'blockTokens' | 'hashIds' | 'sessionId'
  > {
  /** Unix milliseconds by a clock that does not jump while the router lives. */
  readonly arrivedAtMs: number
  readonly promptTokens: number
  /** Undefined: not known. */
  readonly outputTokens: number | undefined
  readonly blockSizeTokens: number
  /** Pairs [lo, hi] of the full blocks of the prompt. */
  readonly sequenceHashes: Int32Array
  /** The session id as given by the client. */
  readonly sessionId: string | undefined
}

/** From the router: a request is over. */
export interface SettledMessage extends Message {
  readonly type: 'settled'
  readonly request: SettledRequest
  /** Number of requests settled before it since the router started. A gap shows that messages were lost. */
  readonly number: number
}

export interface DecisionLogStatus {
  /** Requests that were written. */
  readonly written: number
  /** Requests that were not, and are not going to be. */
  readonly dropped: number
  readonly bytes: number
  /** Bytes that wait for the file. */
  readonly waitingBytes: number
  /** Why the file cannot be written; undefined: it can. */
  readonly fault: string | undefined
}

export type DecisionLogMessage =
  | FleetMessage
  | SettledMessage
  /** Answers when all that was told before is in the file (true), or cannot be written. */
  | { readonly type: 'flush'; readonly reply: Reply<boolean> }
  | { readonly type: 'status'; readonly reply: Reply<DecisionLogStatus> }
  // From itself.
  | { readonly type: 'look' }
