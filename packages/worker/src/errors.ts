import { CodedError, openText } from '@homing/base'

/** A worker cannot be started with this option. */
export class BadWorkerOptionError extends CodedError {
  readonly code = 'HOMING_WORKER_BAD_OPTION'

  constructor(option: string, value: string, wanted: string) {
    super(`cannot start a worker with ${option} ${JSON.stringify(openText(value))}: use ${wanted}`, {
      option,
      value: openText(value),
      wanted,
    })
  }
}

/**
 * For programs to throw before the first output: the worker cannot take this request, and the router may try
 * another one.
 */
export class RefuseRequestError extends Error {
  /** 429 and 503: the worker has too much to do; 400 … 499 otherwise: the request is at fault. */
  readonly status: number

  constructor(message: string, status = 503) {
    super(message)
    this.name = 'RefuseRequestError'
    this.status = status
  }
}
