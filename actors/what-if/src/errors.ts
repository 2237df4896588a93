import { CodedError } from '@homing/base'

/** One question is being answered; it can be cancelled. */
export class WhatIfBusyError extends CodedError {
  readonly code = 'HOMING_WHAT_IF_BUSY'

  constructor(id: string, elapsedMs: number) {
    const seconds = Math.round(elapsedMs / 1000)
    super(
      `cannot ask what if: another question is being answered since ${seconds} s; DELETE /what_if cancels it`,
      { run: id, seconds },
    )
  }
}

/** The answer did not come in time, or its thread has died. */
export class WhatIfFailedError extends CodedError {
  readonly code = 'HOMING_WHAT_IF_FAILED'

  constructor(reason: string) {
    super(`cannot say what would have been: ${reason}`, { reason })
  }
}
