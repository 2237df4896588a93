/**
 * The public types of the actor runtime: what an actor is, how it is reached, what is promised.
 *
 * A *behavior* answers messages one at a time. It lives on exactly one thread; a *ref* reaches it
 * from any thread. No actor knows which transport carries a message. The promises (order,
 * at-most-once, what settles when) are in docs/actors.md, each with its test.
 */

import type { Clock, Duration, Random } from '@homing/clock'
import type { RouterError } from '@homing/errors'
import type { Log } from '@homing/log'
import type { DeadLetterReason } from './dead-letters.ts'
import type { MessageLayout } from './layout/layout.ts'
import type { MessageKey } from './mailbox.ts'
import type { FlightEvent } from './observe/flight.ts'
import type { SystemCounters } from './observe/observatory.ts'

/** Every message is plain readonly data with a `type`. */
export interface Message {
  readonly type: string
}

/** Answers an ask, once; a second call, or one after the deadline, is discarded. */
export type Reply<T> = (value: T) => void

/** The variants of M that carry a `reply`, and so can be asked. */
export type Asks<M extends Message> = Extract<M, { readonly reply: Reply<never> }>

/** What the caller of `ask` writes: the message without its `reply`. */
export type AskInput<A> = A extends unknown ? Omit<A, 'reply'> : never

/** What an ask of variant A answers. */
export type AskResult<A> = A extends { readonly reply: Reply<infer R> } ? R : never

/** `ok`: accepted by the mailbox or the link to it; `full`: refused by a bound; `dead`: nobody there. */
export type TellStatus = 'ok' | 'full' | 'dead'

export interface AskOptions {
  /** Deadline; the ask settles by then, whatever happens to the target. */
  readonly timeout: Duration
  /** Abandons the ask: it rejects with AskAbortedError and its slot is freed. */
  readonly signal?: AbortSignal
}

/**
 * The only way to reach an actor. Refs may be put into messages and args (also nested in plain
 * objects and arrays); they arrive as working refs on any thread. Equal targets compare equal by `key`.
 */
export interface ActorRef<in M extends Message> {
  /** Unique in the system: thread, slot and incarnation. */
  readonly key: string
  /** The name it was spawned with, for people. */
  readonly name: string
  /** Never throws, never blocks. */
  tell(message: M): TellStatus
  /**
   * Sends and awaits the answer. Rejects with one of AskTimeoutError, AskRefusedError (mailbox full),
   * ActorTerminatedError (dead, or died before it answered), ThreadDownError, AskAbortedError, or the
   * error that the handler threw when it failed while handling this very message.
   */
  ask<A extends AskInput<Asks<M>>>(
    message: A,
    options: AskOptions,
  ): Promise<AskResult<Extract<Asks<M>, { readonly type: A extends { readonly type: infer T } ? T : never }>>>
}

/**
 * `threadExit`: its thread ended; `threadHung`, `threadOom`: was ended because it did not answer, or ran out of
 * memory; `unreachable`: its thread is not coming back.
 */
export type TerminationReason =
  | 'stopped'
  | 'failed'
  | 'threadExit'
  | 'threadHung'
  | 'threadOom'
  | 'unreachable'

/** Delivered exactly once per watch. */
export interface Terminated {
  readonly type: 'terminated'
  readonly ref: ActorRef<never>
  readonly reason: TerminationReason
  /** Why, when the reason is a failure. */
  readonly error?: RouterError
}

/** Signals reach the optional `[signal]` arm of a behavior; they may overtake messages. */
export type Signal =
  | Terminated
  /**
   * This instance is about to be replaced; release what it holds. After `error`, its own or that of a sibling, and
   * with the type of its message that failed, if it was one. A `permanent` actor that stopped has no error.
   */
  | { readonly type: 'beforeRestart'; readonly error: unknown; readonly messageType?: string }
  /** The actor has stopped for good; the last thing it is given. */
  | { readonly type: 'stopped'; readonly reason: TerminationReason }

/** The key of the signal arm of a behavior. */
export const signal: unique symbol = Symbol('homing.signal')

/**
 * One arm per message type, exhaustive by type. An arm that returns a promise suspends the mailbox
 * until it settles, unless the definition is `reentrant`.
 */
export type Behavior<M extends Message> = {
  readonly [T in M['type']]: (message: Extract<M, { readonly type: T }>) => void | Promise<void>
} & { readonly [signal]?: (signal: Signal) => void | Promise<void> }

/** A shared facility of a thread (transport, …): made once per thread, replaced whole in a simulation. */
export interface Capability<T> {
  readonly name: string
  readonly create: (thread: ThreadFacilities) => T
  /** Releases it when its thread stops; optional. */
  readonly dispose?: (value: T) => void | Promise<void>
}

/** A value to use instead of making the capability of that name. */
export type Provided = readonly [capability: { readonly name: string }, value: unknown]

/** What a capability is built from. */
export interface ThreadFacilities {
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
}

export interface ActorContext<M extends Message> {
  readonly self: ActorRef<M>
  readonly name: string
  /** The thread this actor lives on: 'main', 'events-0', … */
  readonly thread: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  /** The thread's instance of a capability. */
  use<T>(capability: Capability<T>): T
  /** Spawns a child: it is supervised here and stopped with this actor, before it. */
  spawn<C extends Message, A>(definition: ActorDefinition<C, A>, options: SpawnOptions<A>): ActorRef<C>
  /** Stops a child (or this actor itself) after the message it is handling. */
  stop(ref?: ActorRef<never>): void
  /** One `terminated` signal when `ref` ends, also when it has ended already. */
  watch(ref: ActorRef<never>): void
  unwatch(ref: ActorRef<never>): void
  /** Tells `message` to this actor later; cancelled when the actor stops or restarts. */
  schedule(delay: Duration, message: M): { cancel(): void }
  /**
   * Tells `message` to this actor at every multiple of `interval` from now, until cancelled, stopped or restarted.
   * One still waiting, or a pause of any length, is followed by one message, not by all that were due.
   * Throws RangeError for an interval of 0.
   */
  scheduleEvery(interval: Duration, message: M): { cancel(): void }
  /**
   * Sets a message aside until `unstashAll`, its ask with it. Throws StashFullError past the bound of `mailbox.stash`.
   * A restart puts what is stashed back in front of the mailbox; a stop makes it dead letters.
   */
  stash(message: M): void
  /** Puts what is stashed back in front of the mailbox, in its order. Returns how many. */
  unstashAll(): number
  /** Turns the outcome of a promise into a message to this actor; never an unhandled rejection. */
  pipe<T>(promise: Promise<T>, onFulfilled: (value: T) => M, onRejected: (error: unknown) => M): void
}

export interface ActorDefinition<M extends Message, A> {
  readonly moduleUrl: string
  readonly exportName: string
  readonly reentrant: boolean
  /** How the failure of a child concerns its siblings; default `one-for-one`. */
  readonly supervise?: Strategy
  /** How messages travel between threads field by field. */
  readonly layout?: MessageLayout
  /** Message types that overtake all others in the mailbox. */
  readonly control?: ReadonlySet<string>
  /** The key by which messages replace each other in a mailbox whose overflow is `coalesce`. */
  readonly coalesce?: (message: M) => MessageKey
  readonly setup: (context: ActorContext<M>, args: A) => Behavior<M> | Promise<Behavior<M>>
}

/**
 * 'here': the spawner's thread. A thread name such as 'main' or 'events-0'. `{ pool, key }`: the thread
 * of the pool that `key` sticks to. 'dedicated': a thread of its own, ended with the actor.
 */
export type Placement =
  | 'here'
  | 'dedicated'
  | (string & {})
  | { readonly pool: string; readonly key: string | number }

export interface Backoff {
  readonly min: Duration
  readonly max: Duration
  /** Share of the delay that is random, 0 … 1. */
  readonly jitter?: number
}

/**
 * Which siblings are restarted with a child that fails and is restarted: none, all, or those that were spawned
 * after it. They are stopped in reverse order and restarted in order, with the same refs and mailboxes.
 */
export type Strategy = 'one-for-one' | 'one-for-all' | 'rest-for-one'

/** What happens when the actor fails. Default: stop, and tell the watchers. */
export type Supervision =
  | { readonly directive: 'stop' }
  /** Keeps the instance and its state; only the failing message is lost. A setup that fails ends the actor. */
  | { readonly directive: 'resume' }
  | {
      readonly directive: 'restart'
      /** `transient`: after a failure (default); `permanent`: also when the actor stops itself. */
      readonly type?: 'transient' | 'permanent'
      readonly max: number
      readonly within: Duration
      readonly backoff: Backoff
      /** Past `max` restarts within `within` the actor ends as failed; `escalate`: and fails the parent. Default `stop`. */
      readonly whenExhausted?: 'stop' | 'escalate'
    }
  /** Fails the parent. */
  | { readonly directive: 'escalate' }

export interface MailboxOptions {
  /** Messages that may wait; default 1024. */
  readonly capacity: number
  /**
   * `reject`: tell answers 'full' (default). `dropOldest`, `dropNewest`: the loss is a counted dead letter.
   * `coalesce`: a message takes the place of a waiting one with its key, full or not (a counted dead letter);
   * full of other keys it rejects. The definition says what the key is.
   */
  readonly overflow?: 'reject' | 'dropOldest' | 'dropNewest' | 'coalesce'
  /** Messages that the actor may stash; default 1024. */
  readonly stash?: number
}

export interface SpawnOptions<A> {
  readonly args: A
  readonly name: string
  readonly thread?: Placement
  readonly supervision?: Supervision
  readonly mailbox?: MailboxOptions
  /**
   * How long the actor may take to stop before it is abandoned and reported; default 5 s. `kill`: it ends at once,
   * without signals. `infinity`: only the deadline of the system bounds it.
   */
  readonly shutdown?: Duration | 'kill' | 'infinity'
}

export interface ThreadPoolOptions {
  /** Threads in the pool: named `<pool>-0` … `<pool>-<count − 1>`. */
  readonly count: number
}

export interface ActorSystemOptions {
  readonly name?: string
  /** Pools of threads beside 'main'; started before `createActorSystem` resolves. */
  readonly pools?: Readonly<Record<string, ThreadPoolOptions>>
  readonly clock?: Clock
  readonly random?: Random
  readonly logLevel?: import('@homing/log').LogLevel
  /** Restarts of one thread within a minute before its actors are reported as unreachable; default 10. */
  readonly threadRestartsMax?: number
  /** Delay before a thread is replaced again; the first replacement is immediate. Default 20 ms … 2 s. */
  readonly threadBackoff?: Backoff
  /**
   * A thread that gives no sign of life for so long (its event loop does not go round) is ended and replaced;
   * 0: never. Default 10 s, so that a machine that stands still is no cause.
   */
  readonly hungAfter?: Duration
  /** Keep one worker loaded that takes over from a thread that dies, in 3 ms instead of 30. Default true. */
  readonly warmSpare?: boolean
  /** Node options of the other threads; default: those of the process, with their preloads. */
  readonly threadExecArgv?: readonly string[]
  /** The log of main, instead of one on standard error; other threads make their own with `logLevel`. */
  readonly log?: Log
  /** Values to use on main instead of making the capability; they stay the caller's to dispose. */
  readonly provide?: readonly Provided[]
}

/** What a shutdown did. */
export interface ShutdownReport {
  readonly durationMs: number
  /** Actors that did not stop within their time. */
  readonly slow: readonly string[]
  /** Messages that were waiting in mailboxes when their actor stopped. */
  readonly droppedMessages: number
}

/** Plain counters, summed over all threads that are alive. */
export interface SystemStats {
  readonly actors: number
  readonly threads: number
  readonly sent: number
  readonly handled: number
  readonly deadLetters: number
  /** The same by reason. */
  readonly deadLettersByReason: Readonly<Record<DeadLetterReason, number>>
  readonly refused: number
  readonly restarts: number
  readonly threadRestarts: number
  readonly asksPending: number
  readonly asksTimedOut: number
}

/** One actor, as `describe` shows it. */
export interface ActorStatus {
  readonly name: string
  readonly thread: string
  readonly state: 'starting' | 'running' | 'backoff' | 'stopping'
  readonly mailboxDepth: number
  /** Most messages that ever waited at once. */
  readonly mailboxHighWater: number
  readonly restarts: number
  readonly children: readonly ActorStatus[]
}

/** One thread, as `threads` shows it. */
export interface ThreadStatus {
  readonly name: string
  /**
   * `hung`: it gives no sign of life and is being ended; `replacing`: it has ended and its next life is about to
   * start; `ended`: it is not coming back.
   */
  readonly state: 'starting' | 'running' | 'hung' | 'replacing' | 'stopping' | 'ended'
  /** Times that it was started. */
  readonly lives: number
  /** Times that it was replaced within the last minute. */
  readonly restartsLately: number
}

/** The actors of a system, as far as their threads have answered. */
export interface Census {
  /** Top-level actors, and those whose parent is on a thread that has not answered. */
  readonly actors: readonly ActorStatus[]
  /** Threads that did not say who is on them: they are busy or hung, or were replaced just now. */
  readonly unanswered: readonly string[]
}

/** What an actor on main may know of its system: `context.use(systemView)`. */
export interface SystemView {
  /** Asks every thread; bounded by a second. */
  census(): Promise<Census>
  /** Read from shared memory: never waits, and includes threads that are hung or dead. */
  counters(): SystemCounters
  /** Main first. */
  threads(): readonly ThreadStatus[]
  /**
   * The last `limit` (default 100) things that a thread did, the oldest first, also of one that is hung or dead;
   * undefined: no such thread is known.
   */
  flight(thread: string, limit?: number): readonly FlightEvent[] | undefined
}

export interface ActorSystem extends SystemView {
  /** Spawns a top-level actor. Throws UnknownExportError at once when the definition's module lacks the export. */
  spawn<M extends Message, A>(definition: ActorDefinition<M, A>, options: SpawnOptions<A>): ActorRef<M>
  /** Resolves when `ref` has ended, with the reason. */
  whenTerminated(ref: ActorRef<never>): Promise<Terminated>
  /** Stops one top-level actor and its children; resolves when it has ended. */
  stop(ref: ActorRef<never>): Promise<Terminated>
  stats(): Promise<SystemStats>
  describe(): Promise<readonly ActorStatus[]>
  /** Ends a thread of a pool as a crash would: for fault tests. */
  killThread(name: string): Promise<void>
  shutdown(options?: { readonly deadline?: Duration }): Promise<ShutdownReport>
}
