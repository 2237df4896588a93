/** The type of an answer, by its headers (names in lower case): only types that we can read count. */

import type { RequestHeaders } from './types.ts'

/**
 * An event stream that can be read: engines are asked for no compression, and one that compresses all the
 * same is not.
 */
export function isStreamAnswer(headers: RequestHeaders): boolean {
  return isPlain(headers) && typeOf(headers).startsWith('text/event-stream')
}

export function isJsonAnswer(headers: RequestHeaders): boolean {
  return isPlain(headers) && /^application\/(?:[\w.-]+\+)?json\b/.test(typeOf(headers))
}

function isPlain(headers: RequestHeaders): boolean {
  return ['', 'identity'].includes(String(headers['content-encoding'] ?? ''))
}

function typeOf(headers: RequestHeaders): string {
  return String(headers['content-type'] ?? '')
}
