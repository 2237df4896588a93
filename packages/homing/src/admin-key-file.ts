/** The file of `--admin-key-file`. */

import { readFile } from 'node:fs/promises'
import { SettingsError } from '@homing/config'

const KEY_CHARACTERS_MIN = 16
const KEY_CHARACTERS_MAX = 4096

/** Rejects with SettingsError; what is in the file is in no message. */
export async function readAdminKey(path: string): Promise<string> {
  const fault = (text: string) =>
    new SettingsError('router', [`--admin-key-file ${JSON.stringify(path)} ${text}`])
  const text = await readFile(path, 'utf8').catch((thrown: Error) => {
    throw fault(`cannot be read: ${thrown.message}`)
  })
  const key = text.trim()
  if (key.length < KEY_CHARACTERS_MIN || key.length > KEY_CHARACTERS_MAX || !/^[\x21-\x7e]+$/.test(key)) {
    throw fault(
      `must hold one key of ${KEY_CHARACTERS_MIN} to ${KEY_CHARACTERS_MAX} printable characters without spaces, such as the output of: openssl rand -hex 32`,
    )
  }
  return key
}
