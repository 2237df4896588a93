import { CodedError, openText } from '@homing/base'

/** A worker cannot be registered so. */
export class BadRegistrationError extends CodedError {
  readonly code = 'HOMING_WORKER_BAD_REGISTRATION'

  constructor(what: string, value: string, wanted: string) {
    super(`cannot register a worker with ${what} ${JSON.stringify(openText(value))}: use ${wanted}`, {
      what,
      value: openText(value),
      wanted,
    })
  }
}

/** The bodies of all requests that a worker serves take as much memory as they may. */
export class NoBodyRoomError extends CodedError {
  readonly code = 'HOMING_WORKER_NO_BODY_ROOM'

  constructor(heldBytes: number, bytesMax: number) {
    super(
      `cannot take the body of the request: bodies of requests hold ${heldBytes} bytes, and may hold ${bytesMax}`,
      { heldBytes, bytesMax },
    )
  }
}

/** As many requests are open as a worker serves at one time, or it takes no more. */
export class CallsFullError extends CodedError {
  readonly code = 'HOMING_WORKER_CALLS_FULL'

  constructor(openCount: number, callsMax: number, isClosing: boolean) {
    super(
      isClosing
        ? 'cannot take the request: this worker is stopping'
        : `cannot take the request: ${openCount} requests are open, and ${callsMax} may be`,
      { openCount, callsMax },
    )
  }
}
