import { CodedError } from '@homing/base'

/** The file of the decision log cannot be used; the router does not start. */
export class DecisionLogFileError extends CodedError {
  readonly code = 'HOMING_DECISION_LOG_FILE'

  constructor(path: string, reason: string) {
    super(`cannot write the decision log to ${path}: ${reason}`, { path, reason })
  }
}
