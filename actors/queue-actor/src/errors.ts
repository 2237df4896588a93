import { CodedError } from '@homing/errors'
import type { QueueRefusal } from '@homing/queue'

type Refusal<R extends QueueRefusal['reason']> = Extract<QueueRefusal, { readonly reason: R }>

/** The request would have to wait, and may not, or no longer. `retryAfterSeconds`: until what waits has drained, where that is known. */
abstract class RefusedError extends CodedError {
  constructor(why: string, refusal: QueueRefusal, retryAfterSeconds: number | undefined) {
    const known = retryAfterSeconds === undefined ? {} : { retryAfterSeconds }
    super(`cannot let the request wait: ${why}`, { ...refusal, ...known })
  }
}

/** As much waits as may. */
export class QueueFullError extends RefusedError {
  readonly code = 'HOMING_QUEUE_FULL'

  constructor(refusal: Refusal<'queue_full'>, retryAfterSeconds: number | undefined) {
    const { current, limit, limitKind } = refusal
    super(`the queue is full, ${current} of ${limit} ${limitKind} wait`, refusal, retryAfterSeconds)
  }
}

/** A limit of its policy class is reached. */
export class ClassLimitError extends RefusedError {
  readonly code = 'HOMING_QUEUE_CLASS_LIMIT'

  constructor(refusal: Refusal<'class_limit'>, retryAfterSeconds: number | undefined) {
    const { policyClass, current, limit, limitKind } = refusal
    const why = `its policy class ${policyClass} is full, ${current} of ${limit} (${limitKind}) wait`
    super(why, refusal, retryAfterSeconds)
  }
}

/** It waited for as long as it may. */
export class DeadlineError extends RefusedError {
  readonly code = 'HOMING_QUEUE_DEADLINE'

  constructor(refusal: Refusal<'deadline'>, retryAfterSeconds: number | undefined) {
    super('its deadline has passed, and no worker had room', refusal, retryAfterSeconds)
  }
}

/** It asks not to wait. */
export class DoNotQueueError extends RefusedError {
  readonly code = 'HOMING_QUEUE_DO_NOT_QUEUE'

  constructor(refusal: Refusal<'do_not_queue'>, retryAfterSeconds: number | undefined) {
    super('no worker has room, and it asks not to wait', refusal, retryAfterSeconds)
  }
}

/** A request with its id is here already. */
export class DuplicateError extends RefusedError {
  readonly code = 'HOMING_QUEUE_DUPLICATE'

  constructor(refusal: Refusal<'duplicate'>, retryAfterSeconds: number | undefined) {
    super('a request with its id waits already', refusal, retryAfterSeconds)
  }
}

/** Whoever asked for a place does not want it any more; nobody is there to read this. */
export class CancelledError extends CodedError {
  readonly code = 'HOMING_QUEUE_CANCELLED'

  constructor() {
    super('cannot place the request: it was taken back')
  }
}

export function refusedError(refusal: QueueRefusal, retryAfterSeconds: number | undefined): CodedError {
  switch (refusal.reason) {
    case 'queue_full':
      return new QueueFullError(refusal, retryAfterSeconds)
    case 'class_limit':
      return new ClassLimitError(refusal, retryAfterSeconds)
    case 'deadline':
      return new DeadlineError(refusal, retryAfterSeconds)
    case 'do_not_queue':
      return new DoNotQueueError(refusal, retryAfterSeconds)
    case 'duplicate':
      return new DuplicateError(refusal, retryAfterSeconds)
  }
}
