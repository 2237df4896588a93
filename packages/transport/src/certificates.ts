/** Which certificate authorities TLS connections to engines and brokers trust. */

import { readFileSync } from 'node:fs'
import process from 'node:process'
import * as tls from 'node:tls'

/** Where systems have theirs in one file: Debian and Alpine, Fedora, SUSE, BSD. Some have two of these. */
const SYSTEM_FILES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
]

/** What `getCACertificates` would answer, on a Node that lacks it; undefined: not read yet. */
let substitute: readonly string[] | undefined

/**
 * Certificates in PEM: those of Node, of NODE_EXTRA_CA_CERTS, of the system, and `own` besides; '' or
 * undefined: none. The first call reads the system's.
 */
export function believedCertificates(own: string | undefined): string[] {
  const more = own === undefined || own === '' ? [] : [own]
  // Node has this function from 22.15 on.
  const getCACertificates: typeof tls.getCACertificates | undefined = tls.getCACertificates
  if (getCACertificates !== undefined)
    return [...getCACertificates('default'), ...getCACertificates('system'), ...more]
  substitute ??= [
    ...tls.rootCertificates,
    ...firstFile([process.env['NODE_EXTRA_CA_CERTS'] ?? '']),
    ...firstFile(SYSTEM_FILES),
  ]
  return [...substitute, ...more]
}

/** The text of the first file that can be read. */
function firstFile(paths: readonly string[]): readonly string[] {
  for (const path of paths) {
    try {
      return [readFileSync(path, 'utf8')]
    } catch {
      // Other systems have theirs elsewhere; Node itself warns of an extra file that it cannot read.
    }
  }
  return []
}
