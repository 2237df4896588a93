/** The files of an engine's settings: its API key, and the certificate and private key of https. */

import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { TlsIdentity } from '@homing/transport'
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
  if (!isKeyOf(certificateOf(certificate, tlsCertificateFile), key))
    throw refused('--tls-key', tlsKeyFile, 'is not the private key of that certificate')
  return { certificate, key }
}

function certificateOf(pem: string, path: string): X509Certificate {
  try {
    return new X509Certificate(pem)
  } catch {
    throw refused('--tls-cert', path, 'is no certificate in PEM (BEGIN CERTIFICATE)')
  }
}

function isKeyOf(certificate: X509Certificate, pem: string): boolean {
  try {
    return certificate.checkPrivateKey(createPrivateKey(pem))
  } catch {
    return false
  }
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
