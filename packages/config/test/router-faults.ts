/** Faults of a command line, an environment and a file of the router, for the tests of this folder. */

import assert from 'node:assert/strict'
import { parseSettings, routerCommand, SettingsError } from '../src/index.ts'

export const machine = { cores: 8 }

export function faultsOf(argv: readonly string[], env: Record<string, string> = {}, configFile?: string) {
  try {
    parseSettings(routerCommand, argv, env, configFile === undefined ? { machine } : { machine, configFile })
  } catch (error) {
    assert.ok(error instanceof SettingsError)
    return error.faults
  }
  return []
}
