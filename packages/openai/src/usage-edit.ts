/**
 * The edit that asks an engine for the usage of a stream whose client did not ask for it.
 *
 * `stream_options.include_usage` adds one event to a stream, with usage and without choices, before `[DONE]`;
 * the rest of the stream stays the same. UsageTap takes that event out again.
 *
 * Source: OpenAI's chat completions and completions; vLLM, SGLang and TensorRT-LLM as they implement it.
 */

import { scanRequest } from './scan.ts'
import { type BodyEdit, memberEdit } from './splice.ts'
import type { ByteRange, RequestScan } from './types.ts'

const OPTIONS = 'stream_options'
const INCLUDE = 'include_usage'

/**
 * For the body of a stream as `readRequest` has passed it. Undefined where there is nothing to ask or no
 * right to: the client asked itself, or it wants usage in every chunk (`continuous_usage_stats`), which
 * asking would switch on.
 */
export function usageEdit(bytes: Uint8Array, scan: RequestScan): BodyEdit | undefined {
  const textOf = ({ start, end }: ByteRange) =>
    Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start).toString()
  const options = scan.byName.get(OPTIONS)?.value
  if (options === undefined || textOf(options) === 'null') {
    return memberEdit(scan, OPTIONS, `{"${INCLUDE}":true}`)
  }
  const inner = scanRequest(bytes.subarray(options.start, options.end))
  const isSet = (name: string): boolean => {
    const member = inner.byName.get(name)
    if (member === undefined) return false
    const { start, end } = member.value
    return !['false', 'null'].includes(textOf({ start: options.start + start, end: options.start + end }))
  }
  if (isSet(INCLUDE) || isSet('continuous_usage_stats')) return undefined
  const { start, end, text } = memberEdit(inner, INCLUDE, 'true')
  return { start: options.start + start, end: options.start + end, text }
}
