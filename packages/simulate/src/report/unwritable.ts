import { CodedError } from '@homing/base'

/** A report cannot be written to the file that was named. */
export class UnwritableReportError extends CodedError {
  readonly code = 'HOMING_SIMULATE_UNWRITABLE'

  constructor(path: string, cause: Error) {
    super(`cannot write the report ${path}: ${cause.message}`, { path }, { cause })
  }
}
