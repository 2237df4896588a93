import type { Reply } from '@homing/actor'
import type { ErrorRecord } from '@homing/base'
import type { PotentialKeyLoad } from '@homing/placement'

/** Where the router would send a prompt, or has booked it. */
export interface ChosenWorker {
  /** Worker key. */
  readonly worker: string
  /** Id by which requests name the worker. */
  readonly instanceId: number
  readonly dpRank: number
  /** Base URL of the worker. */
  readonly origin: string
  /** Leading blocks of the prompt that it holds, as the router believes. */
  readonly overlapBlocks: number
}

/** A prompt that a program asks about. Bytes and ids are only read. */
export interface ProgramPrompt {
  /**
   * JSON of a completion, or with `token_ids` in place of a prompt; `nvext` and `router_config_override` as
   * clients send them.
   */
  readonly body: Uint8Array
  /** The prompt, as bit patterns of u32; the body has none then. Undefined: it is in the body. */
  readonly ids?: Int32Array | undefined
}

/** From programs that route by themselves. */
export type ProgramMessage =
  /**
   * The worker for a prompt. With an `id` the request is booked there, until `freeReserved`, and counts as
   * load like any other; without one, nothing changes.
   */
  | {
      readonly type: 'bestWorker'
      readonly prompt: ProgramPrompt
      readonly id: string | undefined
      readonly reply: Reply<ChosenWorker | ErrorRecord>
    }
  /** What each worker key would have to do with the prompt. Changes nothing. */
  | {
      readonly type: 'potentialLoads'
      readonly prompt: ProgramPrompt
      readonly reply: Reply<readonly PotentialKeyLoad[] | ErrorRecord>
    }
  /** The first token of a booked request has come; repeated: the request is alive. */
  | {
      readonly type: 'reservedPrefilled'
      readonly id: string
      readonly reply: Reply<ErrorRecord | undefined>
    }
  /** A booked request has ended. */
  | { readonly type: 'freeReserved'; readonly id: string; readonly reply: Reply<ErrorRecord | undefined> }
