/** The file of `--client-keys-file`, read and checked before anything is started. */

import { KEYS_FILE_BYTES_MAX } from '@homing/base'
import { SettingsError } from '@homing/config'
import { readFollowedFiles } from '@homing/http'
import { BadClientKeysError, type ClientKey, parseClientKeys } from '@homing/queue'

const OPTION = '--client-keys-file'

/** Rejects with SettingsError for all faults of the file at once; none repeats a value of it. */
export async function loadClientKeys(
  path: string,
): Promise<{ readonly file: string; readonly keys: readonly ClientKey[] }> {
  try {
    const [text] = await readFollowedFiles([{ option: OPTION, path }], KEYS_FILE_BYTES_MAX)
    return { file: path, keys: parseClientKeys(text!, path) }
  } catch (thrown) {
    const named = `${OPTION} ${JSON.stringify(path)}`
    const faults =
      thrown instanceof BadClientKeysError
        ? thrown.faults.map(fault => `${named}: ${fault}`)
        : [(thrown as Error).message]
    throw new SettingsError('router', faults)
  }
}
