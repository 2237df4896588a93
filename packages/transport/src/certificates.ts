/** Which certificate authorities TLS connections to engines and brokers trust. */

import { getCACertificates } from 'node:tls'

/**
 * Certificates in PEM: those of Node, of the system, and `own` besides; '' or undefined: none. The first call
 * reads the system's.
 */
export function believedCertificates(own: string | undefined): string[] {
  const more = own === undefined || own === '' ? [] : [own]
  return [...getCACertificates('default'), ...getCACertificates('system'), ...more]
}
