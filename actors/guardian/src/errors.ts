import { CodedError } from '@homing/base'

/** An actor failed more often than its budget allows, or could not start. */
export class ActorLostError extends CodedError {
  readonly code = 'HOMING_GUARDIAN_ACTOR_LOST'

  constructor(actor: string, why: string) {
    super(`cannot go on without the ${actor}: ${why}`, { actor })
  }
}
