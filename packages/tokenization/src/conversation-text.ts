/**
 * The text of a conversation of which no tokens can be known here: with tools that an engine has of its own,
 * pictures, or parts of a later version of the API.
 *
 *   system, instructions, templates, tools     one line each
 *   messages, or the items of input            one line each, in order; so a turn only adds lines
 *
 * A line is canonical JSON: members are sorted, since clients do not keep their order between turns. What
 * changes between turns without changing the prompt is left out: marks for caching (`cache_control`), which
 * clients move to the last message, and Claude Code's billing header. Media and other encoded bytes stand
 * there as their hash, repeated so that an object counts as what an engine makes of it; so do parts that only
 * refer to a medium.
 *
 * Equal beginnings of conversations are equal beginnings of texts: that is all that this text is good for.
 */

import { hash } from 'node:crypto'
import { BILLING_HEADER } from './chat-request.ts'
import { dumpJson, type PythonDict, type PythonValue } from './python-value.ts'

/** Members in front of the conversation that engines put into its prompt. */
const HEAD = [
  'system',
  'instructions',
  'chat_template',
  'chat_template_kwargs',
  'tools',
  'documents',
] as const
/** The conversation: of chats and Messages, of Responses. */
const LISTS = ['messages', 'input'] as const
/** What only the engine knows: these conversations begin where no text tells. */
const ELSEWHERE = ['previous_response_id', 'previous_input_messages', 'conversation', 'prompt'] as const
/** Marks what a client wants to have cached. */
export const CACHE_MARK = 'cache_control'
/** Members whose text is encoded bytes, and no text of a prompt. */
const ENCODED = new Set(['data', 'file_data', 'b64_json'])
/** Encoded, too; but not shown to the model as an object of many tokens. */
const SEALED = new Set(['encrypted_content', 'signature'])
/** Shorter ones stay as they are. */
const ENCODED_CHARACTERS_MIN = 128
/** A token counts as four bytes of text. */
const BYTES_PER_TOKEN = 4
const HASH_CHARACTERS = 16

/** Tokens of a content part of this type; undefined: it is no medium. '': of encoded bytes without a type. */
export type MediaTokens = (type: string) => number | undefined

/**
 * Of a chat, a Messages or a Responses request. Undefined: it has no conversation, or goes on from one that
 * only the engine has. Throws RenderingRefusedError for too deep nesting.
 */
export function conversationText(body: PythonDict, mediaTokens: MediaTokens): string | undefined {
  if (ELSEWHERE.some(name => isSet(body.get(name)))) return undefined
  const name = LISTS.find(list => isSet(body.get(list)))
  if (name === undefined) return undefined
  const lines: string[] = []
  // Schemas of tools have members of any name.
  const encodedTokens: MediaTokens = type => (type === '' ? mediaTokens('') : undefined)
  for (const member of HEAD) {
    const value = body.get(member)
    if (isSet(value)) lines.push(`${member} ${line(value, encodedTokens)}`)
  }
  for (const item of itemsOf(body.get(name))) lines.push(line(item, mediaTokens))
  return lines.join('')
}

/** A text alone is what the next turn sends back as the user's message. */
function itemsOf(list: PythonValue): readonly PythonValue[] {
  if (Array.isArray(list)) return list
  return [new Map([['role', 'user'] as const, ['content', list] as const])]
}

function line(value: PythonValue, mediaTokens: MediaTokens): string {
  return `${dumpJson(lasting(value, mediaTokens), { sortKeys: true })}\n`
}

/** The value without what changes between turns, and with hashes for media. */
function lasting(value: PythonValue, mediaTokens: MediaTokens): PythonValue {
  if (typeof value === 'string') return shortened('', value, mediaTokens)
  if (Array.isArray(value))
    return value.filter(item => !isBilling(item)).map(item => lasting(item, mediaTokens))
  if (!(value instanceof Map)) return value
  const type = value.get('type')
  const tokens = typeof type === 'string' ? mediaTokens(type) : undefined
  if (tokens !== undefined) {
    const medium = new Map([...value].filter(([name]) => name !== CACHE_MARK))
    return repeated(digest(dumpJson(medium, { sortKeys: true })), tokens)
  }
  const kept: PythonDict = new Map()
  for (const [name, member] of value) {
    if (name === CACHE_MARK) continue
    const isText = typeof name === 'string' && typeof member === 'string'
    kept.set(name, isText ? shortened(name, member, mediaTokens) : lasting(member, mediaTokens))
  }
  return kept
}

function isBilling(item: PythonValue): boolean {
  const text = item instanceof Map ? item.get('text') : undefined
  return typeof text === 'string' && text.startsWith(BILLING_HEADER)
}

function shortened(name: string, text: string, mediaTokens: MediaTokens): string {
  if (text.length < ENCODED_CHARACTERS_MIN) return text
  if (SEALED.has(name)) return digest(text)
  if (!ENCODED.has(name) && !text.startsWith('data:')) return text
  const tokens = mediaTokens('')
  return tokens === undefined ? text : repeated(digest(text), tokens)
}

function repeated(hash: string, tokens: number): string {
  return hash.repeat(Math.ceil((tokens * BYTES_PER_TOKEN) / HASH_CHARACTERS))
}

function digest(text: string): string {
  return hash('sha256', text).slice(0, HASH_CHARACTERS)
}

function isSet(value: PythonValue): boolean {
  return value !== undefined && value !== null
}
