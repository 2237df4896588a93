import { RouterError } from '@homing/errors'

/** The settings cannot be used; `faults` holds every reason found, a sentence each. */
export class SettingsError extends RouterError {
  readonly code = 'HOMING_CONFIG_BAD_SETTINGS'
  readonly faults: readonly string[]

  constructor(command: string, faults: readonly string[]) {
    super(`cannot start ${command}: ${faults.join('; ')}`, { command, faultCount: faults.length })
    this.faults = faults
  }
}
