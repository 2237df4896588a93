/**
 * The body of an engine's `/tokenize` for a request: the client's own members as bytes, nothing rewritten.
 */

import type { RequestFields, RequestScan } from '@homing/openai'
import { type PythonDict, type PythonValue, RenderingRefusedError } from '@homing/tokenization'

export type TokenizeQuestion =
  | { readonly kind: 'body'; readonly body: Uint8Array }
  /** `/tokenize` cannot render what this request asks for. */
  | { readonly kind: 'unknown'; readonly reason: string }

/** Members of a chat request that `/tokenize` knows. */
const CHAT_MEMBERS = [
  'messages',
  'tools',
  'add_generation_prompt',
  'continue_final_message',
  'add_special_tokens',
  'chat_template',
  'chat_template_kwargs',
] as const

/** Members that change the rendering of a chat and that `/tokenize` has not. */
const CHAT_MEMBERS_UNKNOWN = ['documents', 'reasoning_effort'] as const

const TEXT_PARTS: ReadonlySet<string> = new Set(['text', 'input_text', 'output_text', 'refusal', 'thinking'])

export function tokenizeBody(
  body: Uint8Array,
  scan: RequestScan,
  request: RequestFields,
  model: string,
): TokenizeQuestion {
  const isChat = request.promptShape === 'messages'
  if (!isChat && request.promptShape !== 'text') {
    return { kind: 'unknown', reason: `/tokenize takes one text, not ${request.promptShape}` }
  }
  if (isChat) {
    const unknown = CHAT_MEMBERS_UNKNOWN.find(name => hasValue(body, scan, name))
    if (unknown !== undefined) return { kind: 'unknown', reason: `/tokenize does not know ${unknown}` }
    const medium = mediaTypeIn(body, scan)
    if (medium !== undefined) {
      return { kind: 'unknown', reason: `/tokenize does not tell how the engine handles ${medium}` }
    }
  }
  const names: readonly string[] = isChat ? CHAT_MEMBERS : ['prompt', 'add_special_tokens']
  const parts: Uint8Array[] = [text(`{"model":${JSON.stringify(model)}`)]
  for (const name of names) {
    const member = scan.byName.get(name)
    if (member === undefined) continue
    parts.push(text(`,${JSON.stringify(name)}:`), body.subarray(member.value.start, member.value.end))
  }
  parts.push(text('}'))
  return { kind: 'body', body: Buffer.concat(parts) }
}

/** A member that is there and not null. */
export function hasValue(body: Uint8Array, scan: RequestScan, name: string): boolean {
  const text = valueText(body, scan, name)
  return text !== undefined && text !== 'null'
}

/**
 * The type of a content part that is not text: its blocks hash with the medium, which no token shows.
 * `values`: of the body, where they are at hand; what they cannot tell is read from the bytes.
 */
export function mediaTypeIn(
  body: Uint8Array,
  scan: RequestScan,
  values?: () => PythonDict | undefined,
): string | undefined {
  const known = values && messagesOf(values)
  const text = known === undefined ? valueText(body, scan, 'messages') : undefined
  const messages: unknown = text === undefined ? known : JSON.parse(text)
  for (const message of Array.isArray(messages) ? messages : []) {
    const parts = memberOf(message, 'content')
    for (const part of Array.isArray(parts) ? parts : []) {
      const type = typeof part === 'object' ? memberOf(part, 'type') : 'text'
      if (!TEXT_PARTS.has(String(type))) return `a content part of type ${String(type)}`
    }
  }
  return undefined
}

function messagesOf(values: () => PythonDict | undefined): PythonValue | undefined {
  try {
    return values()?.get('messages')
  } catch (thrown) {
    if (!(thrown instanceof RenderingRefusedError)) throw thrown
    return undefined
  }
}

/** Of what JSON.parse has made, or the reader of Python's values. */
function memberOf(value: unknown, name: string): unknown {
  if (value instanceof Map) return value.get(name)
  return (value as Readonly<Record<string, unknown>> | null | undefined)?.[name]
}

function valueText(body: Uint8Array, scan: RequestScan, name: string): string | undefined {
  const member = scan.byName.get(name)
  if (member === undefined) return undefined
  return Buffer.from(body.subarray(member.value.start, member.value.end)).toString()
}

function text(value: string): Uint8Array {
  return new TextEncoder().encode(value)
}
