import { CodedError } from '@homing/base'
import type { SealedFault } from '@homing/protocol'

/** The file of --router-learned-file cannot be written; nothing is started. */
export class LearnedFileError extends CodedError {
  readonly code = 'HOMING_TRACKER_LEARNED_FILE'

  constructor(path: string, reason: string) {
    super(`cannot keep what is learned in ${path}: ${reason}`, { path, reason })
  }
}

/** A file of learned values is truncated, altered or of another version; workers begin with the priors. */
export class UnusableLearnedFileError extends CodedError {
  readonly code = 'HOMING_TRACKER_UNUSABLE_LEARNED_FILE'

  constructor(fault: SealedFault, reason: string) {
    super(`cannot use a file of learned values: ${reason}`, { fault, reason })
  }
}
