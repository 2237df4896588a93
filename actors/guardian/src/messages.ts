import type { ActorRef, Reply } from '@homing/actor'
import type { ProgramMessage } from '@homing/actors/console'
import type { DirectoryMessage, KeeperMessage } from '@homing/actors/directory'
import type { GatewayAddress, GatewaysMessage } from '@homing/actors/gateway'
import type { IndexerMessage } from '@homing/actors/indexer'
import type { RouterKeeperMessage } from '@homing/actors/router'
import type { LearnedKeeperMessage } from '@homing/actors/tracker'
import type { ErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { HttpAddress } from '@homing/http'

/** The router serves: where, and what it found. */
export interface ReadyReport extends GatewayAddress {
  /** Port of the operator routes; undefined: they are on the same port. */
  readonly admin: HttpAddress | undefined
  /** Port with metrics and health alone; undefined: there is none. */
  readonly metrics: HttpAddress | undefined
  /** After the first probes, with the trust as it is once the first replays have ended, or after 3 s. */
  readonly fleet: Fleet
}

/** What a program that has the router in its own process talks to. */
export interface RouterParts {
  readonly gateway: ActorRef<ProgramMessage>
  readonly directory: ActorRef<Extract<DirectoryMessage, { readonly type: 'describe' }>>
  /** By shard. */
  readonly indexers: readonly ActorRef<IndexerMessage>[]
}

export type GuardianMessage =
  /** These refs stay good over restarts. */
  | { readonly type: 'parts'; readonly reply: Reply<RouterParts> }
  /** Answered once the gateway listens and every worker was probed once, or when the gateway cannot start. */
  | { readonly type: 'whenReady'; readonly reply: Reply<ReadyReport | ErrorRecord> }
  /** The end is near: the gateway is not ready any more, and serves as before. */
  | { readonly type: 'leave' }
  /** Stops taking requests, lets open ones end for `graceMs`; answers how many were cut. */
  | { readonly type: 'drain'; readonly graceMs: number; readonly reply: Reply<number> }
  | KeeperMessage
  | RouterKeeperMessage
  | LearnedKeeperMessage
  | GatewaysMessage
  // From itself.
  | { readonly type: 'renewSubscriptions' }
  /** The thread of this child died; its end must be noticed again. */
  | { readonly type: 'watchAgain'; readonly child: ActorRef<never> }
  | { readonly type: 'ready'; readonly outcome: ReadyReport | ErrorRecord }
