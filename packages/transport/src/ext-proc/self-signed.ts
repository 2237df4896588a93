/**
 * A certificate that signs itself, for listeners whose clients encrypt and do not check: X.509 version 3,
 * ECDSA on P-256 with SHA-256, valid from an hour before it is made, for ten years.
 *
 * Source   RFC 5280 for the fields, X.690 for their encoding (DER).
 */

import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import type { TlsIdentity } from '../http-types.ts'

const HOUR_MS = 3_600_000
const VALID_MS = 10 * 365 * 24 * HOUR_MS
const TAG = {
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  objectId: 0x06,
  utf8: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const
const ECDSA_WITH_SHA256 = Buffer.from('2a8648ce3d040302', 'hex')
const COMMON_NAME = Buffer.from('550403', 'hex')
const SUBJECT_ALT_NAME = Buffer.from('551d11', 'hex')
const DNS_NAME = 0x82
const VERSION = 0xa0
const EXTENSIONS = 0xa3
const VERSION_3 = 2
/** The year from which on a time has four digits. */
const GENERALIZED_FROM = 2050

/** `name`: for whom it is. */
export function selfSignedIdentity(name: string, wallMs: number): TlsIdentity {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const algorithm = der(TAG.sequence, der(TAG.objectId, ECDSA_WITH_SHA256))
  const text = der(TAG.utf8, Buffer.from(name))
  const subject = der(
    TAG.sequence,
    der(TAG.set, der(TAG.sequence, Buffer.concat([der(TAG.objectId, COMMON_NAME), text]))),
  )
  const validity = der(TAG.sequence, Buffer.concat([timeOf(wallMs - HOUR_MS), timeOf(wallMs + VALID_MS)]))
  const names = der(TAG.octets, der(TAG.sequence, der(DNS_NAME, Buffer.from(name))))
  const extension = der(TAG.sequence, Buffer.concat([der(TAG.objectId, SUBJECT_ALT_NAME), names]))
  const serial = randomBytes(16)
  // Positive, and without a leading zero.
  serial[0] = (serial[0]! & 0x7f) | 0x40
  const body = der(
    TAG.sequence,
    Buffer.concat([
      der(VERSION, der(TAG.integer, Buffer.of(VERSION_3))),
      der(TAG.integer, serial),
      algorithm,
      subject,
      validity,
      subject,
      publicKey.export({ type: 'spki', format: 'der' }),
      der(EXTENSIONS, der(TAG.sequence, extension)),
    ]),
  )
  const signature = der(TAG.bits, Buffer.concat([Buffer.of(0), sign('sha256', body, privateKey)]))
  const certificate = der(TAG.sequence, Buffer.concat([body, algorithm, signature]))
  const lines = certificate.toString('base64').replace(/.{64}/g, '$&\n').trimEnd()
  return {
    certificate: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  }
}

function der(tag: number, content: Buffer): Buffer {
  const { length } = content
  if (length < 0x80) return Buffer.concat([Buffer.of(tag, length), content])
  const bytes = length < 0x100 ? Buffer.of(length) : Buffer.of(length >> 8, length & 0xff)
  return Buffer.concat([Buffer.of(tag, 0x80 | bytes.length), bytes, content])
}

function timeOf(wallMs: number): Buffer {
  const date = new Date(wallMs)
  const digits = `${date.toISOString().replace(/[-:T]/g, '').slice(0, 14)}Z`
  return date.getUTCFullYear() < GENERALIZED_FROM
    ? der(TAG.utcTime, Buffer.from(digits.slice(2)))
    : der(TAG.generalizedTime, Buffer.from(digits))
}
