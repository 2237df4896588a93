/** What the gateway is given: limits, and the actors that a request walks through. */

import type { ActorRef } from '@homing/actor'
import type { DirectoryMessage } from '@homing/directory'
import type { DispatcherMessage } from '@homing/dispatcher'
import type { IndexerMessage } from '@homing/indexer'
import type { RouterMessage } from '@homing/router'
import type { TokenizerMessage } from '@homing/tokenizer'
import type { TrackerMessage } from '@homing/tracker'

export interface GatewayArgs {
  readonly host: string
  /** 0 picks a free port; `address` tells which. */
  readonly port: number
  readonly bodyBytesMax: number
  /** Most bytes of all request bodies together. */
  readonly bodiesBytesMax: number
  /** Longest wait for the next bytes of a request body, in milliseconds. */
  readonly bodySilenceMsMax: number
  /** Longest time that an answer may wait for a client that takes none of it, in milliseconds. */
  readonly clientStallMsMax: number
  readonly openRequestsMax: number
  /** Longest wait for the tokenizer, in milliseconds; a long prompt may need seconds. */
  readonly readMsMax: number
  /** Longest wait for router, directory, indexers and tracker, in milliseconds. */
  readonly askMsMax: number
  readonly tokenizer: ActorRef<TokenizerMessage>
  readonly router: ActorRef<RouterMessage>
  readonly dispatcher: ActorRef<DispatcherMessage>
  readonly directory: ActorRef<DirectoryMessage>
  readonly tracker: ActorRef<TrackerMessage>
  readonly indexers: readonly ActorRef<IndexerMessage>[]
}
