/** Heads of answers: only what HTTP can carry, so that a receiver can pass the head on. */

import { shownValue } from '@homing/base'
import type { HttpHeaders } from './http-types.ts'
import { HEADER_BYTES_MAX } from './limits.ts'

const STATUS_MIN = 200
const STATUS_MAX = 599
/** RFC 9110 §5.6.2. */
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
/** RFC 9110 §5.5, as latin1. */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
const LENGTH = /^\d{1,15}$/

/** The fault of a head; undefined: HTTP can carry it. The arguments may have any type. */
export function faultOfAnswerHead(status: unknown, headers: unknown): string | undefined {
  if (!Number.isInteger(status) || (status as number) < STATUS_MIN || (status as number) > STATUS_MAX)
    return `its status ${shownValue(status)} is not a whole number from ${STATUS_MIN} to ${STATUS_MAX}`
  if (typeof headers !== 'object' || headers === null || Array.isArray(headers))
    return 'its headers are no object'
  let bytes = 0
  for (const [name, given] of Object.entries(headers)) {
    if (given === undefined) continue
    if (!NAME.test(name)) return `its header name ${shownValue(name)} is not one that HTTP has`
    const values: readonly unknown[] = Array.isArray(given) ? given : [given]
    for (const value of values) {
      if (typeof value !== 'string') return `its header ${name} is not text`
      if (!VALUE.test(value)) return `its header ${name} has characters that HTTP does not have`
      bytes += name.length + value.length
    }
    if (name.toLowerCase() === 'content-length' && (values.length !== 1 || !LENGTH.test(String(values[0]))))
      return 'its content-length is not a whole number'
  }
  return bytes > HEADER_BYTES_MAX ? `its headers have more than ${HEADER_BYTES_MAX} bytes` : undefined
}

/** Bytes of the body that a head without faults announces; undefined: it does not, or none will come. */
export function announcedBytes(method: string, status: number, headers: HttpHeaders): number | undefined {
  if (method === 'HEAD' || status === 204 || status === 304) return undefined
  const name = Object.keys(headers).find(each => each.toLowerCase() === 'content-length')
  const length = name === undefined ? undefined : headers[name]
  return length === undefined ? undefined : Number(length)
}
