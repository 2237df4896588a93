/**
 * Requests of Anthropic's Messages and OpenAI's Responses to the chat request that the engine makes of them.
 *
 *   /v1/messages     system, blocks, tool_use, tool_result, thinking   ─▶  messages, tools, reasoning_effort
 *   /v1/responses    instructions, input items, function calls          ─▶  the same
 *
 * The engines convert such a request, and render the chat; so does the router, by the rules of the engine
 * that will serve it. What versions do differently, or what only the engine knows (an earlier response, a
 * tool of its own), is refused by name: the request is placed by load then.
 *
 * Here are the rules of vLLM; those of SGLang are in sglang-chat-forms.ts.
 *
 * Source: vLLM 0.32 (entrypoints/anthropic and entrypoints/openai/responses). Compared with a live vLLM.
 */

import { BILLING_HEADER } from './chat-request.ts'
import type { EngineDialect } from './content-format.ts'
import { RenderingRefusedError } from './errors.ts'
import { dumpJson, isTruthy, type PythonDict, type PythonValue } from './python-value.ts'
import { sglangChatOfMessages, sglangChatOfResponses } from './sglang-chat-forms.ts'

/** What vLLM asks a template for where a message disables thinking. */
export type DisabledEffort = 'none' | 'low'

const EFFORTS = ['low', 'medium', 'high', 'xhigh', 'max'] as const

/**
 * `none`, if the template renders another prompt for it than for each effort, else `low`. vLLM finds that out
 * with the same prompts (`_probe_disabled_thinking_effort`), unless its operator sets it. `rendered`: a chat
 * rendered by the template; undefined: the template refuses it.
 */
export function disabledThinkingEffort(
  rendered: (chat: Readonly<Record<string, unknown>>) => string | undefined,
): DisabledEffort {
  const probe = (effort: string): string | undefined =>
    rendered({ messages: [{ role: 'user', content: 'Hi' }], reasoning_effort: effort })
  const none = probe('none')
  if (none === undefined) return 'low'
  return EFFORTS.some(effort => probe(effort) === none) ? 'low' : 'none'
}

/** Members that both forms have in common with a chat, and that change its prompt. */
const SHARED_MEMBERS = ['model', 'cache_salt', 'chat_template_kwargs', 'kv_transfer_params'] as const

/**
 * The chat that an engine makes of a Messages request. `mergesSystem`: vLLM puts all system messages into the
 * first one, as it does where the template refuses them elsewhere. `disabledEffort`: the effort that vLLM
 * asks for where thinking is disabled (`disabledThinkingEffort`); undefined: not known, and such a request is
 * refused. Throws RenderingRefusedError.
 */
export function chatOfMessages(
  body: PythonDict,
  dialect: EngineDialect,
  mergesSystem: boolean,
  disabledEffort?: DisabledEffort,
): PythonDict {
  if (dialect === 'sglang') return sglangChatOfMessages(body)
  const chat = sharedOf(body)
  const messages: PythonDict[] = []
  const given = list(body.get('messages'), 'messages').map(value => dict(value, 'a message'))
  const system = systemTexts(body.get('system') ?? null)
  if (mergesSystem) system.push(...given.filter(isSystem).flatMap(inlineSystemText))
  if (system.length > 0) messages.push(message('system', system.join('')))
  for (const one of given) {
    if (!isSystem(one)) addMessage(messages, one)
    else if (!mergesSystem) for (const shown of inlineSystemText(one)) messages.push(message('system', shown))
  }
  chat.set('messages', messages)
  const tools = body.get('tools') ?? null
  if (tools !== null) {
    chat.set(
      'tools',
      list(tools, 'tools').map(tool => chatTool(dict(tool, 'a tool'))),
    )
  }
  const choice = body.get('tool_choice') ?? null
  if (choice !== null) chat.set('tool_choice', chatToolChoice(dict(choice, 'tool_choice')))
  setEffort(chat, body, disabledEffort)
  return chat
}

/** The chat that an engine makes of a Responses request. Throws RenderingRefusedError. */
export function chatOfResponses(body: PythonDict, dialect: EngineDialect): PythonDict {
  if (dialect === 'sglang') return sglangChatOfResponses(body)
  for (const name of ['previous_response_id', 'previous_input_messages', 'prompt', 'conversation']) {
    refuseIf(isSet(body.get(name)), `only the engine knows what ${name} stands for`)
  }
  refuseIf(
    (body.get('truncation') ?? 'disabled') !== 'disabled',
    'truncation changes the prompt inside the engine',
  )
  const chat = sharedOf(body)
  const messages: PythonDict[] = []
  const instructions = body.get('instructions') ?? null
  if (isTruthy(instructions)) messages.push(message('system', text(instructions, 'instructions')))
  const input = body.get('input') ?? null
  if (typeof input === 'string') messages.push(message('user', input))
  else for (const item of list(input, 'input')) addItem(messages, dict(item, 'an item of input'))
  chat.set('messages', messages)
  const tools = body.get('tools') ?? null
  if (tools !== null && list(tools, 'tools').length > 0) {
    chat.set(
      'tools',
      list(tools, 'tools').map(tool => responsesTool(dict(tool, 'a tool'))),
    )
    const choice = body.get('tool_choice') ?? null
    if (choice === 'none') chat.set('tool_choice', 'none')
  }
  // Unlike for a chat, vLLM lets its tokenizer add tokens that the template may have written already, such as
  // a second BOS.
  chat.set('add_special_tokens', true)
  const isContinued = isUnfinished(input)
  chat.set('add_generation_prompt', !isContinued)
  if (isContinued) chat.set('continue_final_message', true)
  const reasoning = body.get('reasoning') ?? null
  if (reasoning !== null) {
    const effort = dict(reasoning, 'reasoning').get('effort') ?? null
    if (effort !== null) chat.set('reasoning_effort', effort)
  }
  return chat
}

// ── Messages ───────────────────────────────────────────────────────────────────────────────────

function systemTexts(system: PythonValue): string[] {
  if (!isTruthy(system)) return []
  return typeof system === 'string' ? [system] : blockTexts(system, 'system')
}

function isSystem(source: PythonDict): boolean {
  return source.get('role') === 'system'
}

/** At most one text. */
function inlineSystemText(source: PythonDict): string[] {
  const content = source.get('content') ?? null
  if (typeof content === 'string')
    return content === '' || content.startsWith(BILLING_HEADER) ? [] : [content]
  const texts = blockTexts(content, 'content')
  return texts.length === 0 ? [] : [texts.join('')]
}

function blockTexts(blocks: PythonValue, name: string): string[] {
  return list(blocks, name).flatMap(value => {
    const block = dict(value, `a block of ${name}`)
    const kind = block.get('type')
    refuseIf(kind === 'tool_addition' || kind === 'tool_removal', `a block of type ${shown(kind)}`)
    const written = block.get('text') ?? null
    if (kind !== 'text' || !isTruthy(written)) return []
    const kept = text(written, 'text')
    return kept.startsWith(BILLING_HEADER) ? [] : [kept]
  })
}

function addMessage(messages: PythonDict[], source: PythonDict): void {
  const role = text(source.get('role'), 'role')
  const content = source.get('content') ?? null
  if (typeof content === 'string') {
    messages.push(message(role, content))
    return
  }
  const made: PythonDict = new Map([['role', role]])
  const parts: PythonValue[] = []
  const calls: PythonValue[] = []
  const thoughts: string[] = []
  for (const value of list(content, 'content')) {
    const block = dict(value, 'a block')
    const kind = block.get('type')
    if (kind === 'text') {
      if (isTruthy(block.get('text'))) parts.push(textPart(text(block.get('text'), 'text')))
    } else if (kind === 'thinking') {
      if (isSet(block.get('thinking'))) thoughts.push(text(block.get('thinking'), 'thinking'))
    } else if (kind === 'tool_use') calls.push(toolCall(block))
    else if (kind === 'tool_result') addToolResult(messages, parts, block, role)
    else if (kind === 'image') parts.push(mediaPart('image_url'))
    else refuseIf(kind !== 'redacted_thinking', `a block of type ${shown(kind)}`)
  }
  if (thoughts.length > 0) made.set('reasoning', thoughts.join(''))
  if (calls.length > 0) made.set('tool_calls', calls)
  if (parts.length > 0) made.set('content', onlyText(parts) ?? parts)
  if (role !== 'user' || parts.length > 0) messages.push(made)
}

function toolCall(block: PythonDict): PythonDict {
  const id = block.get('id') ?? null
  refuseIf(!isTruthy(id), 'a tool_use without an id, for which engines make one up')
  const input = block.get('input') ?? null
  const given = isTruthy(input) ? dict(input, 'input') : new Map()
  return new Map<string, PythonValue>([
    ['id', id],
    ['type', 'function'],
    [
      'function',
      new Map<string, PythonValue>([
        ['name', block.get('name') ?? ''],
        ['arguments', dumpJson(given, { ensureAscii: true })],
      ]),
    ],
  ])
}

function addToolResult(messages: PythonDict[], parts: PythonValue[], block: PythonDict, role: string): void {
  const content = block.get('content') ?? null
  if (role !== 'user') {
    refuseIf(content !== null && typeof content !== 'string', `a tool_result of a ${role} that is no text`)
    parts.push(textPart(`Tool result: ${content ?? ''}`))
    return
  }
  const id = block.get('tool_use_id') ?? null
  const made = message('tool', toolText(content))
  made.set('tool_call_id', id === null ? '' : text(id, 'tool_use_id'))
  messages.push(made)
}

function toolText(content: PythonValue): string {
  if (content === null) return ''
  if (typeof content === 'string') return content
  const texts = list(content, 'content').map(value => {
    const item = dict(value, 'a part of a tool_result')
    refuseIf(item.get('type') !== 'text', `a tool_result with a part of type ${shown(item.get('type'))}`)
    return text(item.get('text') ?? '', 'text')
  })
  return texts.join('\n')
}

function chatTool(tool: PythonDict): PythonDict {
  const kind = tool.get('type') ?? null
  refuseIf(kind !== null && kind !== 'custom', `a tool of type ${shown(kind)}`)
  refuseIf(isSet(tool.get('defer_loading')), 'a tool with defer_loading')
  const schema = new Map(dict(tool.get('input_schema'), 'input_schema'))
  // vLLM appends the missing member.
  if (!schema.has('type')) schema.set('type', 'object')
  const made: PythonDict = new Map<string, PythonValue>([
    ['name', text(tool.get('name'), 'name')],
    ['description', tool.get('description') ?? null],
    ['parameters', schema],
  ])
  const strict = tool.get('strict') ?? null
  if (strict !== null) made.set('strict', strict)
  return new Map<string, PythonValue>([
    ['type', 'function'],
    ['function', made],
  ])
}

function chatToolChoice(choice: PythonDict): PythonValue {
  const kind = choice.get('type')
  if (kind === 'any') return 'required'
  if (kind === 'auto' || kind === 'none') return kind
  refuseIf(kind !== 'tool', `a tool_choice of type ${shown(kind)}`)
  return new Map<string, PythonValue>([
    ['type', 'function'],
    ['function', new Map([['name', choice.get('name') ?? null]])],
  ])
}

/** The later of the two wins, as in the engine. */
function setEffort(chat: PythonDict, body: PythonDict, disabledEffort: DisabledEffort | undefined): void {
  const output = body.get('output_config') ?? null
  const effort = output === null ? null : (dict(output, 'output_config').get('effort') ?? null)
  if (effort !== null) chat.set('reasoning_effort', effort)
  const thinking = body.get('thinking') ?? null
  const isOff = thinking !== null && dict(thinking, 'thinking').get('type') === 'disabled'
  if (!isOff) return
  refuseIf(
    disabledEffort === undefined,
    'what thinking that is disabled means to the template, is not known here',
  )
  chat.set('reasoning_effort', disabledEffort!)
}

// ── Responses ──────────────────────────────────────────────────────────────────────────────────

function addItem(messages: PythonDict[], item: PythonDict): void {
  const kind = item.get('type') ?? 'message'
  const last = messages.at(-1)
  const before = last?.get('role') === 'assistant' ? last : undefined
  if (kind === 'function_call') {
    refuseIf(isSet(item.get('namespace')), 'a function call with a namespace')
    const call = new Map<string, PythonValue>([
      ['id', text(item.get('call_id'), 'call_id')],
      [
        'function',
        new Map<string, PythonValue>([
          ['arguments', text(item.get('arguments'), 'arguments')],
          ['name', text(item.get('name'), 'name')],
        ]),
      ],
      ['type', 'function'],
    ])
    const calls = before?.get('tool_calls')
    if (Array.isArray(calls)) calls.push(call)
    else if (before !== undefined) before.set('tool_calls', [call])
    else
      messages.push(
        new Map<string, PythonValue>([
          ['role', 'assistant'],
          ['tool_calls', [call]],
        ]),
      )
  } else if (kind === 'function_call_output') {
    const output = item.get('output') ?? null
    refuseIf(typeof output !== 'string', 'a function_call_output that is no text')
    const made = message('tool', output as string)
    made.set('tool_call_id', text(item.get('call_id'), 'call_id'))
    messages.push(made)
  } else if (kind === 'reasoning') addTo(messages, before, 'reasoning', reasoningOf(item))
  else if (kind === 'message' && item.get('role') === 'assistant') {
    addTo(messages, before, 'content', firstText(item.get('content') ?? null))
  } else if (kind === 'message') {
    messages.push(
      new Map<string, PythonValue>([
        ['role', text(item.get('role'), 'role')],
        ['content', item.get('content') ?? null],
      ]),
    )
  } else refuseIf(true, `an item of type ${shown(kind)}`)
}

/** Into the assistant's message before it, if that has none yet. */
function addTo(messages: PythonDict[], before: PythonDict | undefined, name: string, value: string): void {
  if (before !== undefined && (before.get(name) ?? null) === null) before.set(name, value)
  else
    messages.push(
      new Map<string, PythonValue>([
        ['role', 'assistant'],
        [name, value],
      ]),
    )
}

function reasoningOf(item: PythonDict): string {
  refuseIf(isTruthy(item.get('encrypted_content') ?? null), 'reasoning that is encrypted')
  const content = item.get('content') ?? null
  return firstText(isTruthy(content) ? content : (item.get('summary') ?? null))
}

/** Engines take the first part alone. */
function firstText(content: PythonValue): string {
  if (content === null) return ''
  if (typeof content === 'string') return content
  const [first] = list(content, 'content')
  if (first === undefined) return ''
  if (typeof first === 'string') return first
  const written = dict(first, 'a content part').get('text') ?? ''
  return text(written, 'text')
}

/** The last item is one that the engine is to go on with. */
function isUnfinished(input: PythonValue): boolean {
  if (!Array.isArray(input)) return false
  const last = input.at(-1)
  if (!(last instanceof Map)) return false
  const kind = last.get('type') ?? 'message'
  const status = last.get('status')
  return (kind === 'message' || kind === 'reasoning') && (status === 'in_progress' || status === 'incomplete')
}

function responsesTool(tool: PythonDict): PythonDict {
  refuseIf(tool.get('type') !== 'function', `a tool of type ${shown(tool.get('type'))}`)
  refuseIf(isSet(tool.get('defer_loading')), 'a tool with defer_loading')
  const made: PythonDict = new Map<string, PythonValue>([
    ['name', text(tool.get('name'), 'name')],
    ['description', tool.get('description') ?? null],
    ['parameters', tool.get('parameters') ?? null],
  ])
  const strict = tool.get('strict') ?? null
  if (strict !== null) made.set('strict', strict)
  return new Map<string, PythonValue>([
    ['type', 'function'],
    ['function', made],
  ])
}

// ── Parts ──────────────────────────────────────────────────────────────────────────────────────

function sharedOf(body: PythonDict): PythonDict {
  const chat: PythonDict = new Map()
  for (const name of SHARED_MEMBERS) if (isSet(body.get(name))) chat.set(name, body.get(name))
  return chat
}

function message(role: string, content: string): PythonDict {
  return new Map<string, PythonValue>([
    ['role', role],
    ['content', content],
  ])
}

function textPart(content: string): PythonDict {
  return new Map([
    ['type', 'text'],
    ['text', content],
  ])
}

/** Only the engine knows its tokens, so its content does not matter here. */
function mediaPart(type: string): PythonDict {
  return new Map([['type', type]])
}

function onlyText(parts: readonly PythonValue[]): string | undefined {
  const [first, second] = parts
  if (second !== undefined || !(first instanceof Map) || first.get('type') !== 'text') return undefined
  return first.get('text') as string
}

function isSet(value: PythonValue): boolean {
  return value !== undefined && value !== null
}

function shown(kind: PythonValue): string {
  return typeof kind === 'string' ? kind : 'unknown'
}

function refuseIf(condition: boolean, why: string): void {
  if (condition) throw new RenderingRefusedError(why)
}

function list(value: PythonValue, name: string): PythonValue[] {
  if (!Array.isArray(value)) throw new RenderingRefusedError(`${name} is no list`)
  return value
}

function dict(value: PythonValue, name: string): PythonDict {
  if (!(value instanceof Map)) throw new RenderingRefusedError(`${name} is no object`)
  return value
}

function text(value: PythonValue, name: string): string {
  if (typeof value !== 'string') throw new RenderingRefusedError(`${name} is no text`)
  return value
}
