/** TLS identity: whether a certificate and a private key can be used together, and until when. */

import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import type { TlsIdentity } from './http-types.ts'

export interface IdentityFault {
  readonly of: 'certificate' | 'key'
  /** The rest of a sentence that begins with the file. It repeats nothing of what is in it. */
  readonly why: string
}

/** Why a server cannot use them; undefined: it can. */
export function faultOfIdentity({ certificate, key }: TlsIdentity): IdentityFault | undefined {
  let leaf: X509Certificate
  try {
    leaf = new X509Certificate(certificate)
  } catch {
    return { of: 'certificate', why: 'is no certificate in PEM (BEGIN CERTIFICATE)' }
  }
  let privateKey: KeyObject
  try {
    privateKey = createPrivateKey(key)
  } catch {
    const why = key.includes('ENCRYPTED')
      ? 'wants a passphrase: give a key without one'
      : 'is no private key in PEM'
    return { of: 'key', why }
  }
  if (!leaf.checkPrivateKey(privateKey))
    return { of: 'key', why: 'is not the private key of that certificate' }
  try {
    createSecureContext({ cert: certificate, key })
  } catch (thrown) {
    // Of OpenSSL, such as 'ee key too small': it names no part of the key.
    return { of: 'certificate', why: `cannot be used: ${(thrown as Error).message}` }
  }
  return undefined
}

/** Wall-clock milliseconds at which the certificate ends, of the first one in the text. */
export function expiryMsOf({ certificate }: Pick<TlsIdentity, 'certificate'>): number {
  return Date.parse(new X509Certificate(certificate).validTo)
}
