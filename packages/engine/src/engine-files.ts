/** The files of an engine's settings: its API key, and the certificate and private key of https. */

import { readFileSync } from 'node:fs'
import { faultOfIdentity, type TlsIdentity } from '@homing/transport'
import { type EngineSettings, InvalidEngineSettingsError } from './engine-settings.ts'

type EngineFiles = Pick<EngineSettings, 'apiKey' | 'apiKeyFile' | 'tlsCertificateFile' | 'tlsKeyFile'>

/**
 * '' where none is required. Throws InvalidEngineSettingsError, which does not repeat what is in the file.
 */
export function readEngineKey({ apiKey, apiKeyFile }: EngineFiles): string {
  if (apiKeyFile === undefined) return apiKey
  const key = read('--api-key-file', apiKeyFile).trim()
  if (!/^[\x21-\x7e]+$/.test(key))
    throw refused('--api-key-file', apiKeyFile, 'must hold a key alone, in printable ASCII without spaces')
  return key
}

/** Undefined: plain HTTP. Throws InvalidEngineSettingsError. */
export function readEngineTls({ tlsCertificateFile, tlsKeyFile }: EngineFiles): TlsIdentity | undefined {
  if (tlsCertificateFile === undefined || tlsKeyFile === undefined) return undefined
  const certificate = read('--tls-cert', tlsCertificateFile)
  const key = read('--tls-key', tlsKeyFile)
  const fault = faultOfIdentity({ certificate, key })
  if (fault?.of === 'certificate') throw refused('--tls-cert', tlsCertificateFile, fault.why)
  if (fault?.of === 'key') throw refused('--tls-key', tlsKeyFile, fault.why)
  return { certificate, key }
}

function read(option: string, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (thrown) {
    throw refused(
      option,
      path,
      `cannot be read: ${(thrown as NodeJS.ErrnoException).code ?? 'unknown error'}`,
    )
  }
}

function refused(option: string, path: string, why: string): InvalidEngineSettingsError {
  return new InvalidEngineSettingsError([`${option} ${JSON.stringify(path)} ${why}`])
}
