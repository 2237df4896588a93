/**
 * Given up: answers that an engine ends before they are finished, and says so in the finish reason of a
 * choice. vLLM does that to all its requests when it is stopped or paused, and the answer looks like a whole
 * one.
 *
 *   data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}
 *
 * Cost: two searches of the bytes, about a microsecond for an event: its callers ask where a choice ends.
 * Only what has one of the words is parsed.
 */

import { textAfterMark } from './byte-order-mark.ts'
import { eventsOf, payloadOf, type StreamChunk, tryChunk } from './delivered-stream.ts'

/** What engines write where others have `stop` or `length`. */
const GIVEN_UP = ['abort', 'error']
/** In a text of the answer the second quote would be escaped, unless the text ends there. */
const QUOTED = GIVEN_UP.map(word => Buffer.from(`"${word}"`))

/** Whether an engine that says this has not finished its answer. */
export function isGivenUp(finishReason: unknown): boolean {
  return GIVEN_UP.includes(finishReason as string)
}

/** The bytes of whole events before the first choice that was given up; undefined: none was. */
export function beforeGivenUp(events: Uint8Array): Uint8Array | undefined {
  if (!mayBeGivenUp(events)) return undefined
  for (const event of eventsOf(events)) {
    const payload = payloadOf(event)
    const chunk = payload === undefined ? undefined : tryChunk(payload)
    if (hasGivenUp(chunk)) return events.subarray(0, event.byteOffset - events.byteOffset)
  }
  return undefined
}

/** Whether this answer that is no stream has a choice that was given up. */
export function isGivenUpAnswer(body: Uint8Array): boolean {
  return mayBeGivenUp(body) && hasGivenUp(tryChunk(Buffer.from(textAfterMark(body)).toString()))
}

function mayBeGivenUp({ buffer, byteOffset, length }: Uint8Array): boolean {
  const bytes = Buffer.from(buffer, byteOffset, length)
  return QUOTED.some(word => bytes.includes(word))
}

function hasGivenUp(chunk: StreamChunk | undefined): boolean {
  return chunk?.choices.some(choice => isGivenUp(choice.finish_reason)) === true
}
