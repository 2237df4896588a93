/**
 * The public types of the actor runtime: what an actor is, how it is reached, what is promised.
 *
 * A *behavior* answers messages one at a time. It lives on exactly one thread; a *ref* reaches it
 * from any thread. No actor knows which transport carries a message. The promises (order,
 * at-most-once, what settles when) are in docs/actors.md, each with its test.
 */

import type { Clock, CodedError, Duration, Log, Random } from '@homing/base'
import type { FlightEvent } from '../observe/flight.ts'
import type { SystemCounters } from '../observe/observatory.ts'
import type { DeadLetterReason } from '../values/dead-letters.ts'
import type { Message, MessageKey, Reply, TransferOptions } from '../values/message.ts'
import type { ArgsOf, Placement, Pools } from './thread-names.ts'

/** The variants of M that carry a `reply`, and so can be asked. */
export type Asks<M extends Message> = Extract<M, { readonly reply: Reply<never> }>

/** What the caller of `ask` writes: the message without its `reply`. */
export type AskInput<A> = A extends unknown ? Omit<A, 'reply'> : never

/** What an ask of variant A answers. */
export type AskResult<A> = A extends { readonly reply: Reply<infer R> } ? R : never

/**
 * What `tell` answers. `ok`: accepted by the mailbox, or by the link to the thread of the actor, also while
 * that thread is being replaced; `full`: refused by a bound, try again later or go without; `dead`: the
 * actor has ended, or the message cannot travel.
 */
export type TellStatus = 'ok' | 'full' | 'dead'

/** How an ask ends without an answer. */
export interface AskOptions extends TransferOptions {
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
  /** Sends, at most once; in order for each pair of sender and receiver. Never throws, never blocks. */
  tell(message: M, options?: TransferOptions): TellStatus
  /**
   * Sends and awaits the answer. Rejects with one of AskTimeoutError, AskRefusedError (mailbox or link full),
   * ActorTerminatedError (dead, or died before it answered), ThreadDownError (its thread died, or is away),
   * AskAbortedError, UnhandledMessageError, UnserializableMessageError, or the error that the handler threw
   * when it failed while handling this very message: itself on one thread, a RemoteError between threads.
   */
  ask<const T extends Asks<M>['type']>(
    message: { readonly type: T } & AskInput<Extract<Asks<M>, { readonly type: T }>>,
    options: AskOptions,
  ): Promise<AskResult<Extract<Asks<M>, { readonly type: T }>>>
}

/**
 * Why an actor ended. `stopped`: it was told to, or stopped itself; `failed`: and is not restarted;
 * `threadExit`: its thread ended; `threadHung`, `threadOom`: was ended because it did not answer, or ran out
 * of memory; `unreachable`: its thread is not coming back. After the loss of a thread an actor with directive
 * `restart` comes back: isThreadLoss.
 */
export type TerminationReason =
  | 'stopped'
  | 'failed'
  | 'threadExit'
  | 'threadHung'
  | 'threadOom'
  | 'unreachable'

/** The signal that a watched actor has ended. Delivered exactly once per watch. */
export interface Terminated {
  readonly type: 'terminated'
  /** The actor that ended; compare by `key`. */
  readonly ref: ActorRef<never>
  readonly reason: TerminationReason
  /** Why, when the reason is a failure. */
  readonly error?: CodedError
}

/** Signals reach the optional `[signal]` arm of a behavior; they may overtake messages. */
export type Signal =
  | Terminated
  /**
   * This instance is about to be replaced; release what it holds. After `error`, and with the type of its
   * message that failed, if it was one. A `permanent` actor that stopped has no error.
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
  /** Unique in the system: what `provide` replaces it by. */
  readonly name: string
  /** Makes it, when an actor of the thread first uses it. What it throws fails that actor. */
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

/**
 * What a setup is given: who the actor is, and all that it may do beside answering. Its functions may be
 * taken out of it, as in `setup({ self, spawn })`. That of an instance which was replaced or has ended does
 * nothing, and its `spawn` throws.
 */
export interface ActorContext<M extends Message> {
  /** For messages and args of others; also to tell itself something. */
  readonly self: ActorRef<M>
  /** The name it was spawned with. */
  readonly name: string
  /** The thread this actor lives on: 'main', 'events-0', … */
  readonly thread: string
  /** The only time there is for an actor: in tests and simulations it stands still until it is moved. */
  readonly clock: Clock
  /** The only chance there is for an actor: seeded in tests and simulations. */
  readonly random: Random
  /** Lines carry the name of the thread and of the actor. */
  readonly log: Log
  /** The thread's instance of a capability, made at the first use. */
  use<T>(capability: Capability<T>): T
  /**
   * Spawns a child: it is supervised here and stopped with this actor, before it. Returns at once; the child
   * starts later, and what it is told until then waits. Throws UnknownExportError, UnknownThreadError,
   * UnserializableMessageError (args), RangeError (options), or ActorTerminatedError when this instance has
   * ended.
   */
  spawn<C extends Message, A, const T extends ThreadPlacement = ThreadPlacement>(
    definition: ActorDefinition<C, A>,
    options: SpawnOptions<A, T & Placement<T, Pools>>,
  ): ActorRef<C>
  /** Stops a child (or this actor itself) after the message it is handling, or after all that wait. */
  stop(ref?: ActorRef<never>, options?: StopOptions): void
  /** One `terminated` signal when `ref` ends, also when it has ended already. */
  watch(ref: ActorRef<never>): void
  /** Takes a watch back; no signal of it comes after this, if none has come. */
  unwatch(ref: ActorRef<never>): void
  /** Tells `message` to this actor later; cancelled when the actor stops or restarts. */
  schedule(delay: Duration, message: M): { cancel(): void }
  /**
   * Tells `message` to this actor at every multiple of `interval` from now, until cancelled, stopped or
   * restarted. One still waiting, or a pause of any length, is followed by one message, not by all that were
   * due. Throws RangeError for an interval of 0.
   */
  scheduleEvery(interval: Duration, message: M): { cancel(): void }
  /** Turns the outcome of a promise into a message to this actor; never an unhandled rejection. */
  pipe<T>(promise: Promise<T>, onFulfilled: (value: T) => M, onRejected: (error: unknown) => M): void
}

/** What `defineActor` makes: an actor that can be spawned with args A on any thread. Frozen. */
export interface ActorDefinition<M extends Message, A> {
  /** `import.meta.url` of the module that exports it; imported by the threads that run such actors. */
  readonly moduleUrl: string
  /** The name of that export. */
  readonly exportName: string
  /** Async arms interleave instead of suspending the mailbox. */
  readonly reentrant: boolean
  /** Message types that overtake all others in the mailbox. */
  readonly control?: ReadonlySet<string>
  /** The key by which messages replace each other in a mailbox whose overflow is `coalesce`. */
  readonly coalesce?: (message: M) => MessageKey
  /** Makes a behavior, at the start and at every restart. */
  readonly setup: (context: ActorContext<M>, args: A) => Behavior<M> | Promise<Behavior<M>>
}

/**
 * Where an actor runs. 'here': the spawner's thread. A thread name such as 'main' or 'events-0'. `{ pool, key
 * }`: the thread of the pool that `key` sticks to. 'dedicated', or `{ dedicated }` with bounds: a thread of
 * its own, ended with the actor.
 */
export type ThreadPlacement =
  | 'here'
  | 'dedicated'
  | (string & {})
  | { readonly pool: string; readonly key: string | number }
  | { readonly dedicated: DedicatedThread }

/** The bounds of a dedicated thread, where they differ from those of the system. */
export interface DedicatedThread {
  /** Heap limit in MB, at least 16, instead of `threadHeapMb`. Such a thread cannot be the warm spare. */
  readonly heapMb?: number
  /**
   * How long one message may keep its event loop before the thread counts as hung, if that is more than the
   * `hungAfter` of the system.
   */
  readonly hungAfter?: Duration
}

/**
 * What a stop does with messages that wait. `message` (default): it stops after the one in hand; the others
 * are dead letters, and their asks reject with ActorTerminatedError. `mailbox`: it handles first what was
 * told before, on any thread, answers the asks that it took, and lets its children do the same. Meanwhile
 * tells answer `dead` and asks reject. What is left after `within` (default: the `shutdown` of the actor) is
 * dropped as for `message`; then the actor has its `shutdown` to stop.
 */
export type StopOptions =
  | { readonly after?: 'message' }
  | { readonly after: 'mailbox'; readonly within?: Duration }

/** Delays before restarts: `min`, doubled with every restart that still counts in the budget, up to `max`. */
export interface Backoff {
  /** Delay of the first restart. */
  readonly min: Duration
  /** Longest delay. */
  readonly max: Duration
  /** Share of the delay that is random, 0 … 1; it only shortens. Default 0. */
  readonly jitter?: number
}

/** What happens when the actor fails. Default: stop, and tell the watchers. */
export type Supervision =
  | { readonly directive: 'stop' }
  /**
   * Keeps the instance and its state; only the failing message is lost. A setup that fails ends the actor.
   */
  | { readonly directive: 'resume' }
  | {
      readonly directive: 'restart'
      /** `transient`: after a failure (default); `permanent`: also when the actor stops itself. */
      readonly type?: 'transient' | 'permanent'
      /** Restarts allowed within `within`; an integer ≥ 0. */
      readonly max: number
      /** The window of the budget; it slides. */
      readonly within: Duration
      /** Messages wait meanwhile. */
      readonly backoff: Backoff
      /**
       * Past `max` restarts within `within` the actor ends as failed; `escalate`: and fails the parent.
       * Default `stop`.
       */
      readonly whenExhausted?: 'stop' | 'escalate'
    }
  /** Fails the parent. */
  | { readonly directive: 'escalate' }

/** The bounds of a mailbox, and what happens at them. */
export interface MailboxOptions {
  /** Messages that may wait, and as many of the `control` types; an integer ≥ 1, default 1024. */
  readonly capacity: number
  /**
   * `reject`: tell answers 'full' (default). `dropOldest`, `dropNewest`: the loss is a counted dead letter.
   * `coalesce`: a message takes the place of a waiting one with its key, full or not (a counted dead letter);
   * full of other keys it rejects. The definition says what the key is.
   */
  readonly overflow?: 'reject' | 'dropOldest' | 'dropNewest' | 'coalesce'
}

/**
 * How and where an actor is spawned. `args` are given to the setup at the start and at every restart, and
 * travel like a message; they may be left out where the actor takes none.
 */
export type SpawnOptions<A, T extends ThreadPlacement = ThreadPlacement> = SpawnSettings<T> & ArgsOf<A>

/** What a spawn can be told beside the args. */
export interface SpawnSettings<T extends ThreadPlacement = ThreadPlacement> {
  /** For people: in logs, errors and `describe`. Need not be unique. */
  readonly name: string
  /** Default 'here'. */
  readonly thread?: T
  /** Default: stop when it fails. */
  readonly supervision?: Supervision
  /** Default: 1024 messages, the rest refused. */
  readonly mailbox?: MailboxOptions
  /**
   * How long the actor may take to stop before it is abandoned and reported; default 5 s. `kill`: it ends at
   * once, without signals, and so does a dedicated thread, whatever it is doing. `infinity`: only the
   * deadline of the system bounds it.
   */
  readonly shutdown?: Duration | 'kill' | 'infinity'
}

/** Options of a system; all have defaults. */
export interface ActorSystemOptions<P extends Pools = Pools> {
  /** In the lines of the log, where a process has several systems. */
  readonly name?: string
  /** Pools of threads beside 'main'; started before `createActorSystem` resolves. */
  readonly pools?: P
  /** The clock of main. Default: the system's; other threads always have that. */
  readonly clock?: Clock
  /** The random numbers of main. Default: the system's. */
  readonly random?: Random
  /** Default 'info'. */
  readonly logLevel?: import('@homing/base').LogLevel
  /** Default 'auto': text where standard error is a terminal, else JSON lines. */
  readonly logFormat?: import('@homing/base').LogFormat
  /** Restarts of one thread within a minute before its actors are reported as unreachable; default 10. */
  readonly threadRestartsMax?: number
  /** Delay before a thread is replaced again; the first replacement is immediate. Default 20 ms … 2 s. */
  readonly threadBackoff?: Backoff
  /**
   * A thread that gives no sign of life for so long (its event loop does not go round) is ended and replaced;
   * 0: never. Default 10 s, so that a machine that stands still is no cause.
   */
  readonly hungAfter?: Duration
  /**
   * What a thread beside main does before its heap is full. From the share `shedAt` (default 0.7) of its
   * limit on, until it is 0.1 below, what other threads tell and ask its actors is refused: tells answer
   * `full`, asks reject with AskRefusedError; control messages pass. What was on its way is a dead letter of
   * reason `shed`. From `recycleAt` (default 0.85) on, and when it has shed for `shedFor` (default 2 s) and
   * `shedAt` of its heap is still in use, it is replaced, after up to 1 s for what it has taken; its actors
   * end with reason `threadOom`, and with directive `restart` come back. `false`: nothing.
   */
  readonly heapPressure?:
    | { readonly shedAt?: number; readonly recycleAt?: number; readonly shedFor?: Duration }
    | false
  /** Heap limit of each thread beside main, in MB, at least 16; default: as Node has it. */
  readonly threadHeapMb?: number
  /**
   * Shared memory for what one thread tells another and has not been taken, in KiB: a power of two, 16 …
   * 8192; default
   * 1024. Each pair of threads has two. However large, about 16,384 messages wait in it at most.
   */
  readonly ringKib?: number
  /** Keep one worker loaded that takes over from a thread that dies, in 3 ms instead of 30. Default true. */
  readonly warmSpare?: boolean
  /** Node options of the other threads; default: those of the process, with their preloads. */
  readonly threadExecArgv?: readonly string[]
  /**
   * The log of main, instead of one on standard error; other threads make their own with `logLevel` and
   * `logFormat`.
   */
  readonly log?: Log
  /** Values to use on main instead of making the capability; they stay the caller's to dispose. */
  readonly provide?: readonly Provided[]
}

/** What a shutdown did. */
export interface ShutdownReport {
  /** How long it took, in milliseconds. */
  readonly durationMs: number
  /** Actors that did not stop within their time. */
  readonly slow: readonly string[]
  /**
   * Actors that had not handled all that waited when the time to drain was over, or that failed or lost their
   * thread before.
   */
  readonly undrained: readonly string[]
  /** Messages that were handled after it began. */
  readonly handledMessages: number
  /** Messages that were waiting in mailboxes when their actor stopped; dead letters of reason `stopped`. */
  readonly droppedMessages: number
}

/** Plain counters, summed over all threads that are alive. Those over all lives: `counters`. */
export interface SystemStats {
  /** Now; the probes of tests too. */
  readonly actors: number
  /** Now; main included. */
  readonly threads: number
  /** Messages and asks sent. */
  readonly sent: number
  /** Messages and asks that a behavior was given. */
  readonly handled: number
  /** Messages that no actor will handle. */
  readonly deadLetters: number
  /** The same by reason. */
  readonly deadLettersByReason: Readonly<Record<DeadLetterReason, number>>
  /** Messages and asks that a bound refused. */
  readonly refused: number
  /** Restarts of actors. */
  readonly restarts: number
  /** Threads replaced. */
  readonly threadRestarts: number
  /** The part of these due to a full heap. */
  readonly threadRecycles: number
  /** Threads that could not be ended, and are left behind: they may still use a core. */
  readonly threadZombies: number
  /** Asks that await their answer now. */
  readonly asksPending: number
  readonly asksTimedOut: number
}

/** One actor, as `describe` shows it. */
export interface ActorStatus {
  readonly name: string
  /** The thread it lives on. */
  readonly thread: string
  /** `backoff`: it has failed and waits for its restart. */
  readonly state: 'starting' | 'running' | 'backoff' | 'stopping'
  /** Messages that wait. */
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
   * `shedding`: its heap is nearly full: it refuses messages of other threads, or is about to be replaced;
   * `hung`: it gives no sign of life and is being ended; `replacing`: it has ended and its next life is about
   * to start; `ended`: it is not coming back.
   */
  readonly state: 'starting' | 'running' | 'shedding' | 'hung' | 'replacing' | 'stopping' | 'ended'
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
   * The last `limit` (default 100) things that a thread did, the oldest first, also of one that is hung or
   * dead; undefined: no such thread is known.
   */
  flight(thread: string, limit?: number): readonly FlightEvent[] | undefined
}

/**
 * A running system: spawns top-level actors, shows what goes on, and ends it all. Main has it; actors have
 * their context.
 */
export interface ActorSystem<P extends Pools = Pools> extends SystemView {
  /**
   * Spawns a top-level actor. Returns at once; the actor starts later. Throws UnknownExportError when the
   * definition's module lacks the export, UnknownThreadError, UnserializableMessageError (args), RangeError
   * (options), SystemStoppedError.
   */
  spawn<M extends Message, A, const T extends ThreadPlacement = ThreadPlacement>(
    definition: ActorDefinition<M, A>,
    options: SpawnOptions<A, T & Placement<T, P>>,
  ): ActorRef<M>
  /**
   * Resolves when `ref` has ended, with the reason; for a top-level actor when it is not coming back. Never
   * rejects.
   */
  whenTerminated(ref: ActorRef<never>): Promise<Terminated>
  /**
   * Stops one actor and its children, after what waits for them if `options` say so; resolves when it has
   * ended, bounded by its `shutdown` (and by `within`). Rejects with ThreadDownError for one that is no
   * top-level actor while its thread is being replaced.
   */
  stop(ref: ActorRef<never>, options?: StopOptions): Promise<Terminated>
  /** Asks every thread; bounded by a second, without those that do not answer. */
  stats(): Promise<SystemStats>
  /** The tree of actors, top-level ones first; bounded as `stats`. */
  describe(): Promise<readonly ActorStatus[]>
  /**
   * Ends a thread as a crash would: for fault tests. Resolves when it has been replaced, or is given up.
   * Rejects with UnknownThreadError for main and for what is no thread.
   */
  killThread(name: string): Promise<void>
  /**
   * Stops top-level actors, the last spawned first, then threads and capabilities. Resolves by about
   * `deadline` (default 10 s) with what did not stop in time; never rejects for that. What waits in mailboxes
   * is dropped, unless `after` says `mailbox`: then each actor drains before it stops, and all together have
   * `within` (default: four fifths of the deadline) for it. Nothing is spawned at the top meanwhile. A second
   * call joins the first.
   */
  shutdown(options?: StopOptions & { readonly deadline?: Duration }): Promise<ShutdownReport>
}
