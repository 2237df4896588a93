import { RouterError } from '@homing/errors'

/** The worker broke the connection, or could not be reached and no other could take the request. */
export class UpstreamFailedError extends RouterError {
  readonly code = 'HOMING_DISPATCH_UPSTREAM_FAILED'

  constructor(worker: string, reason: string) {
    super(`cannot get an answer from worker ${worker}: ${reason}`, { worker, reason })
  }
}

/** The worker took longer than the limits allow: its silence, or the whole answer. */
export class NoAnswerError extends RouterError {
  readonly code = 'HOMING_DISPATCH_NO_ANSWER'

  constructor(worker: string, reason: string) {
    super(`cannot wait longer for worker ${worker}: ${reason}`, { worker, reason })
  }
}

/** The dispatcher failed, or stops, while the request was under way. */
export class DispatcherRestartedError extends RouterError {
  readonly code = 'HOMING_DISPATCH_RESTARTED'

  constructor() {
    super('cannot finish the answer: the dispatcher was restarted')
  }
}
