/** Evidence: all that a diagnosis has seen of one worker. Findings are derived from it alone. */

import type { LegWorker, ProbeOutcome, ReachedOutcome, WorkerFacts, WorkerSpec } from '@homing/fleet'
import type { SocketClash } from '@homing/transport'
import type { OwnRequest } from './own-request.ts'
import type { RankCheck } from './rank-check.ts'
import type { AskedHttp } from './recorded-http.ts'

export interface Evidence {
  readonly spec: WorkerSpec
  readonly outcome: ProbeOutcome
  /** Every HTTP question, in the order of the answers. */
  readonly asked: readonly AskedHttp[]
  readonly timeoutMs: number
  /** Undefined: it was not reached. */
  readonly reached: ReachedEvidence | undefined
}

/** The facts of a worker with which other workers of its model are compared. */
export interface ModelTwin {
  readonly id: string
  readonly models: readonly string[]
  readonly blockSizeTokens: number
}

/** Another worker, and the part of a request that it takes. */
export interface RolePeer extends LegWorker {
  readonly id: string
  readonly models: readonly string[]
}

export interface ReachedEvidence {
  readonly spec: WorkerSpec
  readonly outcome: ReachedOutcome
  /** The facts as the router would use them. */
  readonly facts: WorkerFacts
  readonly asked: readonly AskedHttp[]
  readonly timeoutMs: number
  /** Ranks with an event source, by rank; at most RANKS_CHECKED_MAX. */
  readonly ranks: readonly RankCheck[]
  /** How long was listened to connected event sockets. */
  readonly listenedMs: number
  /** Sockets that are named twice, in words. */
  readonly clashes: readonly SocketClash[]
  /** The same engine was given before. */
  readonly isAgain: boolean
  /** Among the workers of the fleet, from 0. */
  readonly position: number
  /** The first other worker of the same model whose block size is known, if there is one. */
  readonly twin: ModelTwin | undefined
  readonly self: LegWorker
  /** The other workers of its models that were reached. */
  readonly peers: readonly RolePeer[]
  /** Undefined: none was sent. */
  readonly own: OwnRequest | undefined
  /** A request of its own was wanted, and none was sent: the engine takes none without a partner. */
  readonly needsPartner: boolean
  /** The router's tokenizer for its prompts; undefined: not known here. */
  readonly tokenizer: string | undefined
  /** One chat that both tokenized; undefined: one of them did not. */
  readonly chat: ChatComparison | undefined
}

/** Tokens of a chat here and at the engine. */
export interface ChatComparison {
  readonly tokens: number
  readonly engineTokens: number
  /** The first token that differs; undefined: none does. */
  readonly differsAt: number | undefined
}

/** Further ranks are not checked: they are of the same engine, with the same flags. */
export const RANKS_CHECKED_MAX = 64
