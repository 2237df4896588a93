/** Diagnose options: what a diagnosis is to look at, with what, and for how long. */

import type { Clock, Random } from '@homing/base'
import type { KeySource, ReachedOutcome, WorkerDefaults } from '@homing/fleet'
import type { SocketClaims, Transport } from '@homing/transport'
import type { ModelTwin, RolePeer } from './evidence.ts'
import type { ReplayDepth } from './replay-question.ts'

/** The router's own tokenizer for a model. */
export interface DiagnosisTokenizer {
  /** For people. */
  readonly name: string
  /** With the special tokens that a completion gets. */
  readonly encode: (text: string) => Int32Array
  /** Of the body of a chat; undefined: chats are left to the engine. */
  readonly encodeChat: (body: string) => Int32Array | undefined
}

export interface DiagnoseOptions {
  readonly transport: Pick<Transport, 'http' | 'messages'>
  readonly clock: Clock
  readonly random: Random
  /** Longest wait for each answer. */
  readonly timeoutMs: number
  /** How long event sockets are listened to; it ends early when each has told something. */
  readonly listenMs: number
  readonly replayDepth: ReplayDepth
  /** Send one short completion. */
  readonly sends: boolean
  readonly defaults: WorkerDefaults
  /** API key of engines that name none of their own; undefined: they have none. */
  readonly engineKey?: KeySource | undefined
  /** The reader is the operator: why a key cannot be had is told in full. Default false. */
  readonly tellsKeyFaults?: boolean
  /** Sockets that other workers name: two that name the same are both at fault. */
  readonly claims?: SocketClaims
  /** Other workers of the fleet; the first of a model gives the right block size. */
  readonly twins?: readonly ModelTwin[]
  /** Other workers of the fleet, those of its models and others. */
  readonly peers?: readonly RolePeer[]
  /** Of the first worker among those of the fleet, from 0; default 0. */
  readonly position?: number
  /** Undefined: none is known for this model. */
  readonly tokenizerOf?: (outcome: ReachedOutcome) => Promise<DiagnosisTokenizer | undefined>
}
