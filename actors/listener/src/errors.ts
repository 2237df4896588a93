import { CodedError } from '@homing/base'

/**
 * `truncated`: it ends early. `version`: it is of another version, or no checkpoint. `altered`: it
 * contradicts itself.
 */
export type CheckpointFault = 'truncated' | 'version' | 'altered'

/** The directory for checkpoints cannot be used; nothing is started. */
export class CheckpointDirectoryError extends CodedError {
  readonly code = 'HOMING_LISTENER_CHECKPOINT_DIRECTORY'

  constructor(directory: string, reason: string) {
    super(`cannot keep checkpoints in ${directory}: ${reason}`, { directory, reason })
  }
}

/** A checkpoint cannot be taken over; the source is replayed from its beginning instead. */
export class UnusableCheckpointError extends CodedError {
  readonly code = 'HOMING_LISTENER_UNUSABLE_CHECKPOINT'

  constructor(fault: CheckpointFault, reason: string) {
    super(`cannot use a checkpoint: ${reason}`, { fault, reason })
  }
}
