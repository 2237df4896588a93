/** How the engines are reached: their API key, and the certificates that are believed. */

import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { shownText } from '@homing/base'
import { ENGINE_KEY_VARIABLE, SettingsError, secretVariable } from '@homing/config'
import { type KeySource, readKey } from '@homing/fleet'

/**
 * Of engines that name none of their own. Throws SettingsError if the file cannot be used; what is in it is
 * in no message.
 */
export function givenEngineKey(file: string | undefined, command = 'router'): KeySource | undefined {
  return givenKey(file, ENGINE_KEY_VARIABLE, command, '--engine-api-key-file')
}

/** A key of a file that an option names, else of a variable. Throws SettingsError likewise. */
export function givenKey(
  file: string | undefined,
  variable: string,
  command: string,
  option: string,
): KeySource | undefined {
  if (file === undefined) return secretVariable(variable) === undefined ? undefined : { env: variable }
  const found = readKey({ file })
  // People give the key itself in place of its file: only what is written as a path is repeated.
  const shown = /^\.{0,2}\//.test(file) ? ` (${JSON.stringify(shownText(file))})` : ''
  if ('fault' in found) throw new SettingsError(command, [`${option}: ${found.fault}${shown}`])
  return { file }
}

/** Rejects with SettingsError. */
export async function readCertificates(
  path: string,
  command = 'router',
  option = '--engine-ca-file',
): Promise<string> {
  const fault = (text: string) => new SettingsError(command, [`${option} ${JSON.stringify(path)} ${text}`])
  const text = await readFile(path, 'utf8').catch((thrown: Error) => {
    throw fault(`cannot be read: ${thrown.message}`)
  })
  const found = text.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g) ?? []
  if (found.length === 0) throw fault('holds no certificate in PEM form (BEGIN CERTIFICATE)')
  for (const [position, one] of found.entries()) {
    try {
      new X509Certificate(one)
    } catch {
      throw fault(`holds a certificate that cannot be read (number ${position + 1} of ${found.length})`)
    }
  }
  return found.join('\n')
}
