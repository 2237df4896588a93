/** Arguments of the index service: plain data, in the units of the names. See packages/config. */

import type { Registration } from './requests.ts'

export interface IndexServiceArgs {
  readonly host: string
  /** Names under which browsers may call it, beside those of this machine. */
  readonly hostNames?: readonly string[]
  /** 0 picks a free port; `whenReady` tells which. */
  readonly port: number
  readonly bodyBytesMax: number
  readonly bodiesBytesMax: number
  /** Longest wait for the next bytes of a request body. */
  readonly bodyTimeoutMs: number
  /** Longest time that an answer may wait for a client that takes none of it. */
  readonly clientStallTimeoutMs: number
  /** Longest time that a connection without a request is kept. */
  readonly keepAliveTimeoutMs?: number
  readonly openRequestsMax: number
  /** Requests that are no queries; default: that of ViewRoom. */
  readonly openOperatorRequestsMax?: number
  readonly threads: number
  /**
   * The pool whose threads `<pool>-0 … <pool>-(threads − 1)` host indexers and listeners; default 'events'.
   */
  readonly eventPool?: string
  readonly indexBytes: number
  readonly workerSlotsMax: number
  readonly replayTimeoutMs: number
  /** Where listeners keep checkpoints; undefined: nowhere. */
  readonly checkpointDirectory?: string | undefined
  readonly checkpointIntervalMs?: number
  /** Ranks that are registered from the start; only these can inherit from a peer. */
  readonly registrations: readonly Registration[]
  readonly peers: readonly string[]
  readonly peersMax: number
  readonly peerWaitMs: number
  readonly peerTimeoutMs: number
  readonly peerDumpBytesMax: number
  /** A file; undefined: none. */
  readonly accessLog: string | undefined
  readonly traceIdHeader: string
}
