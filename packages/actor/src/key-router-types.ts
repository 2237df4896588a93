/** What a key router is made with, and what its users see of it. */

import type { Duration } from '@homing/clock'
import type { ActorRef, MailboxOptions, Message, Placement, Supervision, TellStatus } from './types.ts'

/** What messages are routed by; a number is the same key as its text. */
export type RouterKey = string | number

/** How a router is made: its members, what they are keyed by, and what becomes of the keys of one that is away. */
export interface KeyRouterOptions<M extends Message, A> {
  /** Members are named `<name>-0` … `<name>-<size − 1>`. */
  readonly name: string
  /** What each member is made with; a function is given the index of the member. */
  readonly args: A | ((index: number) => A)
  /** The key of a message. Called once or more for each; what it throws, `tell` and `ask` throw. */
  readonly by: (message: KeyedMessage<M>) => RouterKey
  /** Where the members go: round and round over the threads of a pool, or one for each placement. */
  readonly over: { readonly pool: string; readonly size: number } | readonly Placement[]
  /** Default: `restart`, 10 times a minute, after 20 ms … 2 s. A member that ends for good leaves its keys to others. */
  readonly supervision?: Supervision
  /** Of each member; default 1024 messages, the rest refused. Its capacity bounds the tells that wait for a return, too. */
  readonly mailbox?: MailboxOptions
  /** What becomes of the keys of a member whose thread ends. Default `hold`. */
  readonly whileDown?: 'hold' | 'remap'
  /**
   * How long `hold` waits for the next life of the thread before the keys are remapped, and how long keys may wait
   * while they return. Default 200 ms: a thread is replaced in 3 ms by a spare, in 30 without.
   */
  readonly holdFor?: Duration
  /** Keys return to a member that is back by themselves (default), or only when `rebalance` is called. */
  readonly rebalance?: 'onReturn' | 'never'
}

/** A message as it is told or asked, without its reply. */
export type KeyedMessage<M extends Message> = M extends unknown ? Omit<M, 'reply'> : never

/** One member of a router, as it stands now. */
export interface KeyRouterMember<M extends Message> {
  /** `<router>-<index>`. */
  readonly name: string
  /** Another one after the member was fenced: use the router rather than keep this. */
  readonly ref: ActorRef<M>
  /** `down`: its thread is being replaced; `returning`: it is back, or about to be, and has no keys yet. */
  readonly state: 'up' | 'down' | 'returning'
}

/** Routes messages by key to members on several threads; made by `createKeyRouter`, on one thread, and used there. */
export interface KeyRouter<M extends Message> {
  /**
   * Tells the owner of the message's key. `full`: also when too much waits for a member; `dead`: no member is left.
   * In order for each key, whatever becomes of the members.
   */
  tell(message: M): TellStatus
  /**
   * Asks the owner of the message's key. One that its thread had not taken when it ended is asked again, of whoever
   * owns the key then, within its own timeout; it may come after messages that were told later. Any other rejects as
   * that of a ref does: with ThreadDownError when the thread ended while it may have had the ask.
   */
  readonly ask: ActorRef<M>['ask']
  /** The owner of `key` in this epoch, also while it is down; undefined when no member is left. */
  refFor(key: RouterKey): ActorRef<M> | undefined
  /** Those that have not ended for good, in their order. */
  readonly members: readonly KeyRouterMember<M>[]
  /** Counts changes of who owns what, from 1. */
  readonly epoch: number
  /** Lets keys return to the members that are back. */
  rebalance(): void
  /** Stops all members; from now on the router is dead. */
  stop(): void
}
