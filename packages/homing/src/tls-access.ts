/** Certificate and private key of `--tls-cert` and `--tls-key`, read before anything is started. */

import { type RouterSettings, SettingsError } from '@homing/config'
import { readTlsFiles, type TlsArgs } from '@homing/http'

/** Undefined: plain HTTP. Rejects with SettingsError, which repeats nothing of what is in the files. */
export async function readTls({
  tlsCertificateFile: certificateFile,
  tlsKeyFile: keyFile,
}: Pick<RouterSettings, 'tlsCertificateFile' | 'tlsKeyFile'>): Promise<TlsArgs | undefined> {
  if (certificateFile === undefined || keyFile === undefined) return undefined
  const identity = await readTlsFiles({ certificateFile, keyFile }).catch((thrown: Error) => {
    throw new SettingsError('router', [thrown.message])
  })
  return { certificateFile, keyFile, identity }
}
