import { CodedError, LIST_CHARACTERS_MAX } from '@homing/base'

/** The settings cannot be used; `faults` holds every reason found, a sentence each. */
export class SettingsError extends CodedError {
  readonly code = 'HOMING_CONFIG_BAD_SETTINGS'
  readonly faults: readonly string[]

  constructor(command: string, faults: readonly string[]) {
    // One fault fits on the same line; several are listed.
    const list = faults.length === 1 ? ` ${faults[0]}` : faults.map(fault => `\n  ${fault}`).join('')
    super(
      `cannot start ${command}:${list}`,
      { command, faultCount: faults.length },
      { charactersMax: LIST_CHARACTERS_MAX },
    )
    this.faults = faults
  }
}
