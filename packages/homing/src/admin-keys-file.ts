/** The file of `--admin-keys-file`, read and checked before anything is started. */

import { KEYS_FILE_BYTES_MAX } from '@homing/base'
import { type RouterSettings, SettingsError } from '@homing/config'
import { type AdminKey, BadAdminKeysError, parseAdminKeys, readFollowedFiles } from '@homing/http'

const OPTION = '--admin-keys-file'

/** Rejects with SettingsError for all faults of the file at once; none repeats a value of it. */
export async function loadAdminKeys({
  adminKeysFile: path,
  adminKeyFile,
  page,
}: Pick<RouterSettings, 'adminKeysFile' | 'adminKeyFile' | 'page'>): Promise<
  { readonly file: string; readonly keys: readonly AdminKey[] } | undefined
> {
  if (path === undefined) return undefined
  const faults: string[] = []
  if (adminKeyFile !== undefined)
    faults.push(`${OPTION} and --admin-key-file exclude each other: give the one key an entry with a role`)
  if (page === 'open')
    faults.push(`${OPTION} and --page open exclude each other: the page asks for a key, or for none`)
  if (faults.length > 0) throw new SettingsError('router', faults)
  try {
    const [text] = await readFollowedFiles([{ option: OPTION, path }], KEYS_FILE_BYTES_MAX)
    return { file: path, keys: parseAdminKeys(text!, path) }
  } catch (thrown) {
    const named = `${OPTION} ${JSON.stringify(path)}`
    throw new SettingsError(
      'router',
      thrown instanceof BadAdminKeysError
        ? thrown.faults.map(fault => `${named}: ${fault}`)
        : [(thrown as Error).message],
    )
  }
}
