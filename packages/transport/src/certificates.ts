/** Which certificate authorities TLS connections to engines and brokers trust. */

import { readFileSync } from 'node:fs'
import * as tls from 'node:tls'

/** Where systems have theirs in one file: Debian, Fedora, SUSE, Alpine and BSD. */
const SYSTEM_FILES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
]

let onNode20: readonly string[] | undefined

/**
 * Certificates in PEM: those of Node, of the system, and `own` besides; '' or undefined: none. The first call
 * reads the system's.
 */
export function believedCertificates(own: string | undefined): string[] {
  const more = own === undefined || own === '' ? [] : [own]
  // Not there on Node 20, which knows only its own.
  const of: typeof tls.getCACertificates | undefined = tls.getCACertificates
  onNode20 ??= of === undefined ? [...tls.rootCertificates, ...systemFiles()] : []
  return of === undefined ? [...onNode20, ...more] : [...of('default'), ...of('system'), ...more]
}

function systemFiles(): readonly string[] {
  return SYSTEM_FILES.flatMap(file => {
    try {
      return [readFileSync(file, 'utf8')]
    } catch {
      // Other systems have theirs elsewhere.
      return []
    }
  })
}
