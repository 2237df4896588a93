/** Errors of simulations. */

import { CodedError, LIST_CHARACTERS_MAX } from '@homing/base'

/** The simulation is used in a way that it is not made for, or cannot go on. */
export class SimulationError extends CodedError {
  readonly code = 'HOMING_ACTOR_SIMULATION'

  constructor(what: string, why: string) {
    super(`cannot ${what}: ${why}`, { what, why })
  }
}

/** Code that runs in a simulation reached for real time or chance: the run could not be repeated. */
export class RealWorldError extends CodedError {
  readonly code = 'HOMING_ACTOR_REAL_WORLD'

  constructor(name: string) {
    super(`cannot call ${name}: it is not simulated; use the clock and the random numbers of the context`, {
      name,
    })
  }
}

/** A seed failed; the message holds the command that repeats it. */
export class SeedFailedError extends CodedError {
  readonly code = 'HOMING_ACTOR_SEED_FAILED'

  constructor(seed: number, why: string, command: string) {
    super(
      `cannot pass seed ${seed}: ${why}\n  again: ${command}`,
      { seed, why, command },
      { charactersMax: LIST_CHARACTERS_MAX },
    )
  }
}

/** What an actor fails with when a simulation makes it. */
export class SimulatedFailure extends CodedError {
  readonly code = 'HOMING_ACTOR_SIMULATED_FAILURE'

  constructor(actor: string) {
    super(`cannot go on with actor ${actor}: the simulation makes it fail`, { actor })
  }
}
