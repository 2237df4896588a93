import { CodedError } from '@homing/base'

/** A cell cannot be simulated as it was given. */
export class SimulationError extends CodedError {
  readonly code = 'HOMING_SIMULATE_BAD_INPUT'

  constructor(what: string, reason: string) {
    super(`cannot simulate ${what}: ${reason}`, { reason })
  }
}
