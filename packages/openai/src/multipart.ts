/**
 * The model that a form names (`multipart/form-data`): engines take audio and pictures so. The form is only
 * searched: nothing of it is decoded or copied but the part's own headers and value.
 *
 *   --BOUNDARY CRLF  headers CRLF CRLF  value CRLF  --BOUNDARY …  --BOUNDARY--
 *
 * A form that does not look like this names no model here; its engine judges it.
 *
 * Bounds   FORM_PARTS_MAX parts, PART_HEADER_BYTES_MAX bytes of headers of each, MODEL_NAME_BYTES_MAX bytes
 *          of the name.
 *
 * Source: RFC 7578; of several fields of one name the last counts, as in Starlette, on which the engines are
 * built.
 */

import type { ByteRange } from './types.ts'

const FORM_PARTS_MAX = 256
const PART_HEADER_BYTES_MAX = 8192
const MODEL_NAME_BYTES_MAX = 1024
const CR_LF = Buffer.from('\r\n')
const HEADERS_END = Buffer.from('\r\n\r\n')
const BOUNDARY = /;\s*boundary=(?:"([^"]{1,256})"|([^\s;"]{1,256}))/i
const DISPOSITION = /^content-disposition:\s*form-data\s*;(.*)$/im
const NAME = /(?:^|;)\s*name=(?:"([^"]*)"|([^\s;"]*))/i
const FILE_NAME = /(?:^|;)\s*filename\*?=/i
const DASH = 0x2d

export interface FormModel {
  readonly model: string
  /** Of its value. */
  readonly range: ByteRange
  /** All parts were looked at, up to the mark behind the last one. */
  readonly isWhole: boolean
}

/** Whether a body with this content type is a form in parts. */
export function isForm(contentType: string): boolean {
  return /^\s*multipart\/form-data\s*(?:;|$)/i.test(contentType)
}

/** Undefined: the form has no field `model`. */
export function readFormModel(body: Uint8Array, contentType: string): FormModel | undefined {
  const [, quoted, plain] = BOUNDARY.exec(contentType) ?? []
  const boundary = quoted ?? plain
  if (boundary === undefined) return undefined
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength)
  const delimiter = Buffer.from(`\r\n--${boundary}`)
  // The first one may begin the body, without a line before it.
  const first = delimiter.subarray(CR_LF.length)
  let at = bytes.subarray(0, first.length).equals(first) ? first.length : after(bytes, delimiter, 0)
  let found: FormModel | undefined
  for (let part = 0; part < FORM_PARTS_MAX && at !== -1; part++) {
    if (bytes[at] === DASH && bytes[at + 1] === DASH) return found && { ...found, isWhole: true }
    const headersAt = bytes.indexOf(CR_LF, at)
    if (headersAt === -1) break
    const headersEnd = bytes.subarray(headersAt, headersAt + PART_HEADER_BYTES_MAX).indexOf(HEADERS_END)
    if (headersEnd === -1) break
    const start = headersAt + headersEnd + HEADERS_END.length
    const end = bytes.indexOf(delimiter, start - CR_LF.length)
    if (end === -1) break
    if (end >= start && end - start <= MODEL_NAME_BYTES_MAX && isModel(bytes, headersAt, start))
      found = { model: bytes.toString('utf8', start, end), range: { start, end }, isWhole: false }
    at = end + delimiter.length
  }
  return found
}

function after(bytes: Buffer, delimiter: Buffer, from: number): number {
  const at = bytes.indexOf(delimiter, from)
  return at === -1 ? -1 : at + delimiter.length
}

function isModel(bytes: Buffer, start: number, end: number): boolean {
  const parameters = DISPOSITION.exec(bytes.toString('latin1', start, end))?.[1]
  if (parameters === undefined || FILE_NAME.test(parameters)) return false
  const [, quoted, plain] = NAME.exec(parameters) ?? []
  return (quoted ?? plain) === 'model'
}
