/**
 * StreamForm: where an engine puts usage and the members of a stream's last chunk when no request asks for
 * usage.
 *
 *   unasked        {"choices":[{…"finish_reason":"stop"}],"system_fingerprint":"f"}
 *                  [DONE]
 *   asked, vLLM    {"choices":[{…"finish_reason":"stop"}]}
 *                  {"choices":[],"usage":{…},"system_fingerprint":"f"}
 *   asked, OpenAI  {…,"usage":null} in every chunk
 *                  {"choices":[],"usage":{…}}
 *
 * A stream alone does not show the form: usage at its end may come because the request asked, or in any case,
 * and `usage: null` likewise. So the form is learned from a stream that was sent as the client wrote it.
 * Streams with added questions are converted back to that form, chunk by chunk. An engine that sends usage
 * unasked need not be asked.
 *
 * Source: vLLM 0.32 (`system_fingerprint` in the chunk that ends a choice, or else in the event with usage;
 * `--enable-force-include-usage`), OpenAI's reference of `stream_options`.
 */

import { parseJson } from '@homing/base'
import { scanRequest } from './scan.ts'
import { cutMembers, spliceMember } from './splice.ts'
import type { RequestScan } from './types.ts'

export type UsageMember = 'absent' | 'null' | 'value'

export interface StreamForm {
  /** The engine sends usage without being asked, in an event of its own or in a chunk. */
  readonly sendsUsage: boolean
  /** The member `usage` of the chunks with choices; undefined: not the same in all of them. */
  readonly usage: UsageMember | undefined
  /** Members with a value in the chunk that ends a choice. */
  readonly lastMembers: readonly string[]
}

/** True where an engine may be asked for usage and the answer can be brought back to this form. */
export function canAsk({ sendsUsage, usage }: StreamForm): boolean {
  return !sendsUsage && usage !== undefined
}

/** Learns the form from the events of a stream that was not asked. */
export class StreamFormLearner {
  #sendsUsage = false
  #usage: UsageMember | 'mixed' | undefined
  #lastMembers: readonly string[] | undefined

  /** One event as it came, line ends included. */
  observe(event: Uint8Array): void {
    const chunk = tryChunk(event)
    if (chunk === undefined) return
    const { choices, usage } = chunk
    if (usage != null) this.#sendsUsage = true
    if (!Array.isArray(choices) || choices.length === 0) return
    const member: UsageMember = usage === undefined ? 'absent' : usage === null ? 'null' : 'value'
    this.#usage = this.#usage === undefined || this.#usage === member ? member : 'mixed'
    const isLast = choices.some(choice => choice?.finish_reason != null)
    if (isLast) this.#lastMembers = Object.keys(chunk).filter(name => chunk[name] !== null)
  }

  /** Undefined before the end of a choice was seen. */
  form(): StreamForm | undefined {
    if (this.#lastMembers === undefined) return undefined
    return {
      sendsUsage: this.#sendsUsage,
      usage: this.#usage === 'mixed' ? undefined : this.#usage,
      lastMembers: this.#lastMembers,
    }
  }
}

/**
 * A chunk with choices in this form. `missing`: what the chunk that ends a choice lacks of it. An event that
 * cannot be read comes back as it is. The result may share memory with `event`, but for one that lacks
 * something.
 */
export function mendChunk(
  event: Uint8Array,
  form: StreamForm,
): { readonly bytes: Uint8Array; readonly missing: readonly string[] } {
  const chunk = tryChunk(event)
  if (chunk === undefined) return { bytes: event, missing: [] }
  let bytes = event
  if (form.usage === 'absent' && chunk.usage !== undefined) {
    bytes = editPayload(bytes, (payload, scan) => cutMembers(payload, scan, ['usage']))
  } else if (form.usage === 'null' && chunk.usage !== null) {
    bytes = editPayload(bytes, (payload, scan) => spliceMember(payload, scan, 'usage', 'null'))
  }
  const isLast = chunk.choices.some(choice => choice?.finish_reason != null)
  const missing = isLast ? form.lastMembers.filter(name => chunk[name] == null) : []
  return { bytes: missing.length > 0 ? new Uint8Array(bytes) : bytes, missing }
}

/** `event` with the missing members that `usageEvent` has, byte for byte, at its end. */
export function fillChunk(event: Uint8Array, missing: readonly string[], usageEvent: Uint8Array): Uint8Array {
  const source = payloadOf(usageEvent)
  if (source === undefined) return event
  const members = tryScan(source)?.byName
  let bytes = event
  for (const name of missing) {
    const member = members?.get(name)
    if (member === undefined) continue
    const text = textOf(source.subarray(member.value.start, member.value.end))
    if (text === 'null') continue
    bytes = editPayload(bytes, (payload, scan) => spliceMember(payload, scan, name, text))
  }
  return bytes
}

interface Chunk extends Readonly<Record<string, unknown>> {
  readonly usage?: unknown
  readonly choices: readonly { readonly finish_reason?: unknown }[]
}

/** Undefined for an event that is no chunk: nothing is known about it, and nothing to be done. */
function tryChunk(event: Uint8Array): Chunk | undefined {
  const payload = payloadOf(event)
  if (payload === undefined) return undefined
  try {
    const value: unknown = parseJson(textOf(payload))
    const isChunk = typeof value === 'object' && value !== null && 'choices' in value
    return isChunk && Array.isArray(value.choices) ? (value as unknown as Chunk) : undefined
  } catch {
    return undefined
  }
}

/** The event with its payload changed; it has been read as a chunk before. */
function editPayload(
  event: Uint8Array,
  edit: (payload: Uint8Array, scan: RequestScan) => Uint8Array,
): Uint8Array {
  const payload = payloadOf(event)!
  const scan = tryScan(payload)
  if (scan === undefined) return event
  const start = payload.byteOffset - event.byteOffset
  return Buffer.concat([
    event.subarray(0, start),
    edit(payload, scan),
    event.subarray(start + payload.length),
  ])
}

/** Undefined for JSON deeper or wider than the scan goes: it passes unchanged. */
function tryScan(payload: Uint8Array): RequestScan | undefined {
  try {
    return scanRequest(payload)
  } catch {
    return undefined
  }
}

const FIELD = 'data:'

/** A view of what stands behind `data:`; undefined where the event is not one line of data. */
function payloadOf(event: Uint8Array): Uint8Array | undefined {
  if (textOf(event.subarray(0, FIELD.length)) !== FIELD) return undefined
  const isLineEnd = (byte: number): boolean => byte === 0x0a || byte === 0x0d
  const end = event.findIndex(isLineEnd)
  const hasMore = !event.subarray(Math.max(end, 0)).every(isLineEnd)
  if (end < 0 || hasMore) return undefined
  return event.subarray(FIELD.length + (event[FIELD.length] === 0x20 ? 1 : 0), end)
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString()
}
