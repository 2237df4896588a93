/**
 * The errors of the actor runtime. Each one is a value that a caller can be given: a rejected ask,
 * the cause in a `terminated` signal, or a refused spawn. All are listed in docs/actors.md.
 */

import { CodedError, type ErrorDetails, type ErrorRecord, RemoteError } from '@homing/base'
import { type ThreadEnd, type ThreadEndReason, textOfEnd } from './thread-end.ts'

/** No answer came within the deadline of an ask. */
export class AskTimeoutError extends CodedError {
  readonly code = 'HOMING_ACTOR_ASK_TIMEOUT'

  constructor(actor: string, type: string, timeoutMs: number) {
    super(`cannot get an answer to '${type}' from actor ${actor}: none came within ${timeoutMs} ms`, {
      actor,
      type,
      timeoutMs,
    })
  }
}

/** A bound refused the ask: the mailbox of the target or the link to its thread is full. */
export class AskRefusedError extends CodedError {
  readonly code = 'HOMING_ACTOR_ASK_REFUSED'

  constructor(actor: string, type: string, bound: string) {
    super(`cannot ask actor ${actor} for '${type}': ${bound} is full`, { actor, type, bound })
  }
}

/** The caller abandoned the ask through its AbortSignal; `cause` is the signal's reason. */
export class AskAbortedError extends CodedError {
  readonly code = 'HOMING_ACTOR_ASK_ABORTED'

  constructor(actor: string, type: string, cause: unknown) {
    super(
      `cannot finish asking actor ${actor} for '${type}': the caller aborted it`,
      { actor, type },
      { cause },
    )
  }
}

/** The target of an ask is dead or died before it answered; or an ended actor still uses its context. */
export class ActorTerminatedError extends CodedError {
  readonly code = 'HOMING_ACTOR_TERMINATED'

  constructor(actor: string, what: string) {
    super(`cannot ${what}: actor ${actor} has ended`, { actor })
  }
}

/** The thread of the target died, or is being replaced; `cause` is the error that ended it. */
export class ThreadDownError extends CodedError {
  readonly code = 'HOMING_ACTOR_THREAD_DOWN'
  /** False: the thread never took the ask, so that asking again does nothing twice. */
  readonly mayBeTaken: boolean

  constructor(thread: string, why: string, mayBeTaken = true, end?: ThreadEnd) {
    super(`cannot reach thread ${thread}: ${why}`, { thread, ...detailsOf(end) }, causeOf(end?.error))
    this.mayBeTaken = mayBeTaken
  }

  /** The present life of `thread` is over. */
  static ended(thread: string, end: ThreadEnd): ThreadDownError {
    return new ThreadDownError(thread, textOfEnd(end), true, end)
  }

  /** How the thread ended; undefined: it has not, or is not coming back. */
  get reason(): ThreadEndReason | undefined {
    return this.details.reason as ThreadEndReason | undefined
  }
}

function detailsOf(end: ThreadEnd | undefined): ErrorDetails {
  if (end === undefined) return {}
  const { reason, exitCode } = end
  return { reason, ...(exitCode === undefined ? {} : { exitCode }) }
}

function causeOf(record: ErrorRecord | undefined): { readonly cause?: unknown } {
  return record === undefined ? {} : { cause: new RemoteError(record) }
}

/** The error that an actor failed with, as its watchers see it; `cause` where it is on the same thread. */
export class ActorFailedError extends CodedError {
  readonly code = 'HOMING_ACTOR_FAILED'

  constructor(actor: string, cause: unknown) {
    super(`cannot keep actor ${actor} running: ${messageOf(cause)}`, { actor }, { cause })
  }
}

/** The actor failed more often than its supervision allows. */
export class RestartBudgetError extends CodedError {
  readonly code = 'HOMING_ACTOR_RESTART_BUDGET'

  constructor(actor: string, max: number, withinMs: number, cause: unknown) {
    super(
      `cannot restart actor ${actor} again: ${max} restarts within ${withinMs} ms are used up; the last failure: ${messageOf(cause)}`,
      { actor, max, withinMs },
      { cause },
    )
  }
}

/** The argument of an ask is not a message: an object whose `type` is a string. */
export class MalformedMessageError extends CodedError {
  readonly code = 'HOMING_ACTOR_MALFORMED_MESSAGE'

  constructor(actor: string) {
    super(`cannot give this to actor ${actor}: a message is an object whose type is a string`, { actor })
  }
}

/** The behavior has no arm for a message type that was asked. */
export class UnhandledMessageError extends CodedError {
  readonly code = 'HOMING_ACTOR_UNHANDLED_MESSAGE'

  constructor(actor: string, type: string) {
    super(`cannot handle '${type}': actor ${actor} has no arm for it`, { actor, type })
  }
}

/** The module of a definition does not export it under the name that the definition claims. */
export class UnknownExportError extends CodedError {
  readonly code = 'HOMING_ACTOR_UNKNOWN_EXPORT'

  constructor(moduleUrl: string, exportName: string, why: string) {
    super(`cannot spawn '${exportName}' of ${moduleUrl} on another thread: ${why}`, { moduleUrl, exportName })
  }
}

/** The module of a definition cannot be imported on the thread that should run the actor. */
export class ModuleImportError extends CodedError {
  readonly code = 'HOMING_ACTOR_MODULE_IMPORT'

  constructor(moduleUrl: string, thread: string, cause: unknown) {
    super(
      `cannot import ${moduleUrl} on thread ${thread}: ${messageOf(cause)}`,
      { moduleUrl, thread },
      { cause },
    )
  }
}

/** A placement names a thread or pool that the system does not have. */
export class UnknownThreadError extends CodedError {
  readonly code = 'HOMING_ACTOR_UNKNOWN_THREAD'

  constructor(thread: string, why: string) {
    super(`cannot use thread ${thread}: ${why}`, { thread })
  }
}

/** A message, an answer or args hold something that cannot travel to another thread. */
export class UnserializableMessageError extends CodedError {
  readonly code = 'HOMING_ACTOR_UNSERIALIZABLE'

  /** `path`: where in the message it is, when that is known. */
  constructor(what: string, why: string, path = '') {
    const where = path === '' ? what : `${path}, ${what},`
    super(`cannot send ${where} to another thread: ${why}`, { path, what })
  }
}

/** A thread ended before it was ready, or was not ready in time. */
export class ThreadStartError extends CodedError {
  readonly code = 'HOMING_ACTOR_THREAD_START'

  constructor(thread: string, why: string) {
    super(`cannot start thread ${thread}: ${why}`, { thread })
  }
}

/** The system is shutting down or has shut down. */
export class SystemStoppedError extends CodedError {
  readonly code = 'HOMING_ACTOR_SYSTEM_STOPPED'

  constructor(what: string) {
    super(`cannot ${what}: the actor system has been shut down`)
  }
}

/** createActorSystem was called on a thread that belongs to an actor system. */
export class NestedSystemError extends CodedError {
  readonly code = 'HOMING_ACTOR_NESTED_SYSTEM'

  constructor(thread: string) {
    super(
      `cannot create an actor system on its own thread ${thread}: keep actors in a module without side effects`,
      { thread },
    )
  }
}

/** An actor on another thread than main asks what only main can say. */
export class NotOnMainError extends CodedError {
  readonly code = 'HOMING_ACTOR_NOT_ON_MAIN'

  constructor() {
    super('cannot see the system from here: only an actor on the thread main can', {})
  }
}

/** Never throws, whatever was thrown. */
function messageOf(thrown: unknown): string {
  try {
    return thrown instanceof Error ? String(thrown.message) : String(thrown)
  } catch {
    return 'something that cannot be described'
  }
}

type ErrorClass = abstract new (...args: never[]) => CodedError

const CLASSES: ReadonlyMap<string, ErrorClass> = new Map<string, ErrorClass>([
  ['HOMING_ACTOR_ASK_TIMEOUT', AskTimeoutError],
  ['HOMING_ACTOR_ASK_REFUSED', AskRefusedError],
  ['HOMING_ACTOR_ASK_ABORTED', AskAbortedError],
  ['HOMING_ACTOR_TERMINATED', ActorTerminatedError],
  ['HOMING_ACTOR_THREAD_DOWN', ThreadDownError],
  ['HOMING_ACTOR_FAILED', ActorFailedError],
  ['HOMING_ACTOR_RESTART_BUDGET', RestartBudgetError],
  ['HOMING_ACTOR_MALFORMED_MESSAGE', MalformedMessageError],
  ['HOMING_ACTOR_UNHANDLED_MESSAGE', UnhandledMessageError],
  ['HOMING_ACTOR_UNKNOWN_EXPORT', UnknownExportError],
  ['HOMING_ACTOR_MODULE_IMPORT', ModuleImportError],
  ['HOMING_ACTOR_UNKNOWN_THREAD', UnknownThreadError],
  ['HOMING_ACTOR_UNSERIALIZABLE', UnserializableMessageError],
  ['HOMING_ACTOR_THREAD_START', ThreadStartError],
  ['HOMING_ACTOR_SYSTEM_STOPPED', SystemStoppedError],
  ['HOMING_ACTOR_NESTED_SYSTEM', NestedSystemError],
  ['HOMING_ACTOR_NOT_ON_MAIN', NotOnMainError],
])

/** The class of the errors with a code; undefined: it is none of these. */
export function classOfCode(code: string): ErrorClass | undefined {
  return CLASSES.get(code)
}
