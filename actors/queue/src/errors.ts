import { CodedError } from '@homing/base'
import type { QueueRefusal } from '@homing/queue'

type Refusal<R extends QueueRefusal['reason']> = Extract<QueueRefusal, { readonly reason: R }>

/** What the answer to the client contains besides the reason. */
export interface RefusalAnswer {
  /** Time until the waiting requests have drained; undefined: not known. */
  readonly retryAfterSeconds?: number | undefined
  /** HTTP status; undefined: the default of the error. */
  readonly overloadStatus?: number | undefined
}

const MAKES_ROOM = 'and its tenant has most of them for its weight, so its newest request makes room'

/** The request would have to wait, but may not, or not any longer. */
abstract class RefusedError extends CodedError {
  constructor(why: string, refusal: QueueRefusal, answer: RefusalAnswer) {
    const known = Object.entries(answer).filter(([, value]) => value !== undefined)
    super(`cannot let the request wait: ${why}`, { ...refusal, ...Object.fromEntries(known) })
  }
}

/** The queue has reached one of its limits. */
export class QueueFullError extends RefusedError {
  readonly code = 'HOMING_QUEUE_FULL'

  constructor(refusal: Refusal<'queue_full'>, answer: RefusalAnswer) {
    const { current, limit, limitKind, isDisplaced } = refusal
    const why = `the queue is full, ${current} of ${limit} ${limitKind} wait`
    super(isDisplaced === true ? `${why}, ${MAKES_ROOM}` : why, refusal, answer)
  }
}

/** The policy class of the request has reached one of its limits. */
export class ClassLimitError extends RefusedError {
  readonly code = 'HOMING_QUEUE_CLASS_LIMIT'

  constructor(refusal: Refusal<'class_limit'>, answer: RefusalAnswer) {
    const { policyClass, current, limit, limitKind, isDisplaced } = refusal
    const why = `its policy class ${policyClass} is full, ${current} of ${limit} (${limitKind}) wait`
    super(isDisplaced === true ? `${why}, ${MAKES_ROOM}` : why, refusal, answer)
  }
}

/** The deadline of the request passed before a worker had room. */
export class DeadlineError extends RefusedError {
  readonly code = 'HOMING_QUEUE_DEADLINE'

  constructor(refusal: Refusal<'deadline'>, answer: RefusalAnswer) {
    super('its deadline has passed, and no worker had room', refusal, answer)
  }
}

/** No worker has room, and the request asks not to wait. */
export class DoNotQueueError extends RefusedError {
  readonly code = 'HOMING_QUEUE_DO_NOT_QUEUE'

  constructor(refusal: Refusal<'do_not_queue'>, answer: RefusalAnswer) {
    super('no worker has room, and it asks not to wait', refusal, answer)
  }
}

/** A request with the same id is already in the queue. */
export class DuplicateError extends RefusedError {
  readonly code = 'HOMING_QUEUE_DUPLICATE'

  constructor(refusal: Refusal<'duplicate'>, answer: RefusalAnswer) {
    super('a request with its id waits already', refusal, answer)
  }
}

/** The gateway has withdrawn the request, so no client reads this error. */
export class CancelledError extends CodedError {
  readonly code = 'HOMING_QUEUE_CANCELLED'

  constructor() {
    super('cannot place the request: it was taken back')
  }
}

export function refusedError(refusal: QueueRefusal, answer: RefusalAnswer): CodedError {
  switch (refusal.reason) {
    case 'queue_full':
      return new QueueFullError(refusal, answer)
    case 'class_limit':
      return new ClassLimitError(refusal, answer)
    case 'deadline':
      return new DeadlineError(refusal, answer)
    case 'do_not_queue':
      return new DoNotQueueError(refusal, answer)
    case 'duplicate':
      return new DuplicateError(refusal, answer)
  }
}
