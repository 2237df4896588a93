import { CodedError } from '@homing/errors'

/** A worker cannot be registered so. */
export class BadRegistrationError extends CodedError {
  readonly code = 'HOMING_WORKER_BAD_REGISTRATION'

  constructor(what: string, value: string, wanted: string) {
    super(`cannot register a worker with ${what} ${JSON.stringify(value)}: use ${wanted}`, {
      what,
      value,
      wanted,
    })
  }
}
