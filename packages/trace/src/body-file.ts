/**
 * Body file: the bodies that clients sent to an OpenAI-compatible API, one JSON object per line
 *
 *   {"timestamp": 27482, "messages": [{"role": "user", "content": "…"}], "max_tokens": 52}
 *   {"timestamp": 27510, "prompt": "…"}
 *   {"timestamp": 27519, "body": {"messages": […]}}
 *
 *   timestamp   milliseconds, from whatever origin; all lines have one, in order, or none has
 *   body        the body, where it is not the line itself
 *
 * A body has messages (chat) or a prompt (completions). A stream holds one chunk of the file and one line.
 */

import { parseJson } from '@homing/base'
import { type NumberedLine, readLines } from './trace-file.ts'
import { MalformedTraceError } from './trace-line.ts'

export interface LoggedBody {
  /** Milliseconds; undefined: no line of the file has a timestamp. */
  readonly timestampMs: number | undefined
  readonly endpoint: 'chat' | 'completions'
  readonly body: Readonly<Record<string, unknown>>
}

/** Whether a file begins with a body. Throws UnreadableTraceError. */
export async function isBodyFile(path: string): Promise<boolean> {
  for await (const { text } of readLines(path, 'end')) {
    if (text.trim() === '') continue
    const value = objectOf(text)
    return value !== undefined && endpointOf(bodyIn(value)) !== undefined
  }
  return false
}

/** The bodies of a file. Iterating throws MalformedTraceError and UnreadableTraceError. */
export async function* openBodies(path: string): AsyncGenerator<LoggedBody> {
  let before: LoggedBody | undefined
  for await (const line of readLines(path)) {
    if (line.text.trim() === '') continue
    before = parseBodyLine(path, line, before)
    yield before
  }
}

/** The body of a line; `before`: that of the line before. Throws MalformedTraceError. */
export function parseBodyLine(
  path: string,
  { line, text }: NumberedLine,
  before: LoggedBody | undefined,
): LoggedBody {
  const value = objectOf(text)
  if (value === undefined) throw new MalformedTraceError(path, line, 'it is not a JSON object')
  const body = bodyIn(value)
  const endpoint = endpointOf(body)
  if (endpoint === undefined)
    throw new MalformedTraceError(
      path,
      line,
      'it has neither messages nor a prompt, as a text or a list of ids',
    )
  const { timestamp } = value
  if (timestamp !== undefined && !(typeof timestamp === 'number' && timestamp >= 0))
    throw new MalformedTraceError(path, line, 'timestamp must be a number ≥ 0, in milliseconds')
  if (before !== undefined && (before.timestampMs === undefined) !== (timestamp === undefined))
    throw new MalformedTraceError(path, line, 'some lines have a timestamp, and some have none')
  if (before?.timestampMs !== undefined && (timestamp as number) < before.timestampMs) {
    const reason = `timestamp ${timestamp} is before ${before.timestampMs}: sort the lines by timestamp`
    throw new MalformedTraceError(path, line, reason)
  }
  return { timestampMs: timestamp as number | undefined, endpoint, body }
}

function objectOf(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = parseJson(text)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

function bodyIn(value: Record<string, unknown>): Record<string, unknown> {
  if (isObject(value['body'])) return value['body']
  const { timestamp: _, ...body } = value
  return body
}

function endpointOf({ messages, prompt }: Record<string, unknown>): LoggedBody['endpoint'] | undefined {
  if (Array.isArray(messages) && messages.length > 0 && messages.every(isObject)) return 'chat'
  const isIds = Array.isArray(prompt) && prompt.length > 0 && prompt.every(Number.isInteger)
  return isIds || typeof prompt === 'string' ? 'completions' : undefined
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
