/** For tests: certificates that openssl makes. */

import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isInstalled } from './test-server.ts'

/** Why tests that need it are skipped; false: they are not. For the `skip` of a test. */
export const NO_OPENSSL = isInstalled('openssl') ? false : 'openssl is not installed'

export interface SelfSigned {
  readonly certificate: string
  readonly key: string
  readonly certificateFile: string
  readonly keyFile: string
}

/**
 * A certificate and its key, in `folder` as NAME.pem and NAME.key. `subject`: for whom it is;
 * `passphrase`: of the key, which has none by default.
 */
export function selfSigned(
  folder: string,
  name: string,
  subject = 'IP:127.0.0.1',
  passphrase?: string,
): SelfSigned {
  const [keyFile, certificateFile] = [join(folder, `${name}.key`), join(folder, `${name}.pem`)]
  const made = ['req', '-x509', '-newkey', 'rsa:2048', '-days', '2', '-subj', `/CN=${name}`]
  const names = ['-addext', `subjectAltName=${subject}`]
  const cipher = passphrase === undefined ? ['-nodes'] : ['-passout', `pass:${passphrase}`]
  execFileSync('openssl', [...made, ...cipher, '-keyout', keyFile, '-out', certificateFile, ...names], {
    stdio: 'pipe',
  })
  return {
    certificate: readFileSync(certificateFile, 'utf8'),
    key: readFileSync(keyFile, 'utf8'),
    certificateFile,
    keyFile,
  }
}
