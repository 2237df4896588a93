/**
 * The file of `--workers-file` at the start. There is no earlier state to keep, so a fault in it ends the
 * start.
 */

import type { GivenWorkersFile } from '@homing/actors/directory'
import { SettingsError } from '@homing/config'
import { parseWorkersFile, readWorkersFile, WorkersFileError } from '@homing/fleet'

/** Rejects with SettingsError. */
export async function loadWorkersFile(path: string): Promise<GivenWorkersFile> {
  try {
    return { path, urls: parseWorkersFile(await readWorkersFile(path), path) }
  } catch (thrown) {
    if (!(thrown instanceof WorkersFileError)) throw thrown
    throw new SettingsError('router', [`--workers-file: ${thrown.message}`])
  }
}
