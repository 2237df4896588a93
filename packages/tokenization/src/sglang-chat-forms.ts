/**
 * Messages and Responses as the chats that SGLang makes of them.
 *
 *   messages     system texts joined by a line end; a tool_result stays between the texts of its message;
 *                empty texts stay
 *   responses    instructions in front; consecutive messages of the assistant are one, their texts joined by
 *                an empty line
 *
 * What SGLang's flags and templates decide is refused by name: thinking, system messages among the others,
 * developer messages.
 *
 * Source: SGLang 0.5.23 (srt/entrypoints/anthropic/serving.py, srt/entrypoints/openai/serving_responses.py).
 */

import {
  dictIn,
  dictOf,
  given,
  listIn,
  optionalDict,
  optionalList,
  optionalText,
  refuse,
  shortContent,
  textIn,
} from './message-parts.ts'
import { dumpJson, type PythonDict, type PythonValue } from './python-value.ts'

/** Throws RenderingRefusedError. */
export function sglangChatOfMessages(body: PythonDict): PythonDict {
  return dictOf({
    model: given(body.get('model')),
    messages: messagesOf(body),
    tools: messageTools(body),
    tool_choice: messageToolChoice(body),
    reasoning_effort: effortOf(body),
  })
}

/** Throws RenderingRefusedError. */
export function sglangChatOfResponses(body: PythonDict): PythonDict {
  for (const name of ['previous_response_id', 'prompt', 'conversation'])
    if (given(body.get(name)) !== undefined) refuse(`only the engine knows what ${name} stands for`)
  const instructions = optionalText(body.get('instructions'), 'instructions') ?? ''
  const items = joinedItems(itemsOf(body.get('input')))
  const messages = instructions === '' ? items : [dictOf({ role: 'system', content: instructions }), ...items]
  refuseLateSystem(messages)
  return dictOf({
    model: given(body.get('model')),
    messages,
    tools: responseTools(body),
    tool_choice: responseToolChoice(body),
    reasoning_effort: given(optionalDict(body.get('reasoning'), 'reasoning')?.get('effort') ?? null),
    chat_template_kwargs: given(body.get('chat_template_kwargs')),
  })
}

// ── Messages ───────────────────────────────────────────────────────────────────────────────────

function messagesOf(body: PythonDict): PythonDict[] {
  const system = systemOf(body.get('system'))
  const messages = listIn(body.get('messages'), 'messages').flatMap(message =>
    messageOf(dictIn(message, 'a message')),
  )
  return system === '' ? messages : [dictOf({ role: 'system', content: system }), ...messages]
}

function systemOf(system: PythonValue): string {
  if (typeof system === 'string') return system.trim() === '' ? '' : system
  const blocks = optionalList(system, 'system') ?? []
  const texts = blocks.map(value => {
    const block = dictIn(value, 'a system block')
    return block.get('type') === 'text' ? (optionalText(block.get('text'), 'text') ?? '') : ''
  })
  return texts.filter(text => text !== '').join('\n')
}

function messageOf(message: PythonDict): PythonDict[] {
  const role = roleOf(message)
  if (role === 'system') refuse("SGLang's flags decide about a system message between others")
  const content = message.get('content')
  if (typeof content === 'string') return [dictOf({ role, content })]
  const converted: PythonDict[] = []
  let parts: PythonDict[] = []
  const calls: PythonDict[] = []
  for (const value of listIn(content, 'content')) {
    const block = dictIn(value, 'a content block')
    const type = block.get('type')
    if (type === 'text') {
      const text = optionalText(block.get('text'), 'text')
      if (text !== undefined) parts.push(textPart(text))
    } else if (type === 'image') parts.push(imagePart())
    else if (type === 'tool_use') calls.push(toolCall(block))
    else if (type === 'tool_result' && role === 'user') {
      if (parts.length > 0) converted.push(dictOf({ role, content: shortContent(parts) }))
      parts = []
      converted.push(toolResult(block))
    } else if (type === 'tool_result')
      parts.push(
        textPart(
          `Tool result: ${optionalText(block.get('content'), 'a tool_result of the assistant') ?? ''}`,
        ),
      )
    else refuse(`a content block of type ${shownType(block)}`)
  }
  const own = {
    role,
    tool_calls: calls.length > 0 ? calls : undefined,
    content: parts.length > 0 ? shortContent(parts) : undefined,
  }
  if (parts.length > 0 || calls.length > 0) return [...converted, dictOf(own)]
  return role === 'user' ? converted : [dictOf({ role, content: '' })]
}

function toolResult(block: PythonDict): PythonDict {
  const id =
    optionalText(block.get('tool_use_id'), 'tool_use_id') || optionalText(block.get('id'), 'id') || ''
  const content = given(block.get('content'))
  if (typeof content === 'string') return dictOf({ role: 'tool', tool_call_id: id, content })
  const parts: PythonDict[] = []
  for (const value of optionalList(content, 'content') ?? []) {
    const item = dictIn(value, 'a part of a tool result')
    const text = item.get('type') === 'text' ? (optionalText(item.get('text'), 'text') ?? '') : undefined
    if (text !== undefined && text !== '') parts.push(textPart(text))
    else if (item.get('type') === 'image') parts.push(imagePart())
    else if (text === undefined) refuse(`a tool result with a part of type ${shownType(item)}`)
  }
  return dictOf({
    role: 'tool',
    tool_call_id: id,
    content: parts.length === 0 ? '' : shortContent(parts),
  })
}

function effortOf(body: PythonDict): PythonValue {
  if (given(body.get('thinking')) !== undefined)
    refuse("SGLang's reasoning parser decides what thinking changes")
  const effort = given(optionalDict(body.get('output_config'), 'output_config')?.get('effort') ?? null)
  return effort === 'xhigh' ? 'max' : effort
}

function roleOf(message: PythonDict): string {
  const role = textIn(message.get('role'), 'role')
  return ['user', 'assistant', 'system'].includes(role) ? role : refuse(`a message of role ${role}`)
}

function textPart(text: string): PythonDict {
  return dictOf({ type: 'text', text })
}

/** A chat with a picture is not rendered, so the picture itself does not matter. */
function imagePart(): PythonDict {
  return dictOf({ type: 'image_url', image_url: dictOf({ url: '' }) })
}

function toolCall(block: PythonDict): PythonDict {
  const id = optionalText(block.get('id'), 'id') ?? ''
  if (id === '') refuse('a tool_use block without id, for which the engine makes one up')
  const input = optionalDict(block.get('input'), 'input') ?? new Map()
  return dictOf({
    id,
    type: 'function',
    function: dictOf({
      name: optionalText(block.get('name'), 'name') ?? '',
      arguments: dumpJson(input, { ensureAscii: true }),
    }),
  })
}

function messageTools(body: PythonDict): PythonValue {
  const tools = optionalList(body.get('tools'), 'tools') ?? []
  if (tools.length === 0) return undefined
  return tools.map(value => {
    const tool = dictIn(value, 'a tool')
    if (given(tool.get('defer_loading')) !== undefined) refuse('a tool with defer_loading')
    const type = optionalText(tool.get('type'), 'type') ?? 'custom'
    if (type !== 'custom') refuse(`a tool of type ${type}`)
    return dictOf({
      type: 'function',
      function: dictOf({
        name: textIn(tool.get('name'), 'the name of a tool'),
        description: optionalText(tool.get('description'), 'description') ?? '',
        parameters: schemaOf(tool),
        strict: tool.get('strict') ?? false,
      }),
    })
  })
}

/** A schema that says nothing else is one of an object. */
function schemaOf(tool: PythonDict): PythonDict {
  const schema = dictIn(tool.get('input_schema'), 'input_schema')
  return schema.has('type') ? schema : new Map(schema).set('type', 'object')
}

function messageToolChoice(body: PythonDict): PythonValue {
  const choice = optionalDict(body.get('tool_choice'), 'tool_choice')
  switch (choice?.get('type')) {
    case undefined:
      return undefined
    case 'auto':
    case 'none':
      return choice!.get('type')
    case 'any':
      return 'required'
    case 'tool': {
      const name = textIn(choice!.get('name'), 'tool_choice.name')
      return dictOf({ type: 'function', function: dictOf({ name }) })
    }
    default:
      return refuse('a tool_choice of another type')
  }
}

function shownType(block: PythonDict): string {
  const type = block.get('type')
  return typeof type === 'string' ? type : 'unknown'
}

// ── Responses ──────────────────────────────────────────────────────────────────────────────────

function itemsOf(input: PythonValue): readonly PythonDict[] {
  if (typeof input === 'string') return [dictOf({ role: 'user', content: input })]
  return listIn(input, 'input').map(item => dictIn(item, 'an item of input'))
}

function typeOf(item: PythonDict): PythonValue {
  return item.get('type') ?? 'message'
}

function joinedItems(items: readonly PythonDict[]): PythonDict[] {
  const messages: PythonDict[] = []
  for (const item of items) {
    const message = messageOfItem(item)
    if (message === undefined) continue
    const last = messages.at(-1)
    const isGoingOn = last?.get('role') === 'assistant' && message.get('role') === 'assistant'
    if (isGoingOn) messages[messages.length - 1] = joined(last, message)
    else messages.push(message)
  }
  return messages
}

function messageOfItem(item: PythonDict): PythonDict | undefined {
  switch (typeOf(item)) {
    case 'function_call':
      if (given(item.get('namespace')) !== undefined) refuse('a function call of a namespace')
      return dictOf({ role: 'assistant', tool_calls: [functionCall(item)] })
    case 'function_call_output':
      return callOutput(item, flatOutput(item.get('output')))
    case 'reasoning':
      return reasoningOf(item)
    case 'message':
      return plainMessage(item)
    default:
      return refuse(`an item of type ${String(typeOf(item))}`)
  }
}

function reasoningOf(item: PythonDict): PythonDict | undefined {
  if (given(item.get('encrypted_content')) !== undefined) refuse('reasoning that is encrypted')
  for (const name of ['summary', 'content']) {
    const parts = (optionalList(item.get(name), name) ?? []).map(part => dictIn(part, 'a part of reasoning'))
    const texts = parts.map(part => optionalText(part.get('text'), 'text') ?? '').filter(text => text !== '')
    if (texts.length > 0) return dictOf({ role: 'assistant', reasoning_content: texts.join('\n') })
  }
  return undefined
}

function plainMessage(item: PythonDict): PythonDict {
  const role = textIn(item.get('role'), 'role')
  if (!['user', 'assistant', 'system'].includes(role)) refuse(`a message of role ${role}`)
  if (given(item.get('phase')) !== undefined) refuse('a message with a phase')
  const content = given(item.get('content'))
  if (content === undefined || typeof content === 'string') return dictOf({ role, content })
  const parts = listIn(content, 'content').map(value => {
    const part = dictIn(value, 'a content part')
    const type = part.get('type')
    if (type === 'input_text' || type === 'output_text')
      return dictOf({ type: 'text', text: part.get('text') ?? '' })
    return type === 'input_image' ? dictOf({ type: 'image_url', image_url: new Map() }) : part
  })
  return dictOf({ role, content: parts })
}

/** Two messages of one turn of the assistant. */
function joined(first: PythonDict, second: PythonDict): PythonDict {
  const calls = [first, second].flatMap(
    message => optionalList(message.get('tool_calls'), 'tool_calls') ?? [],
  )
  const thoughts = [first, second].flatMap(
    message => optionalText(message.get('reasoning_content'), 'reasoning_content') ?? [],
  )
  return dictOf({
    role: 'assistant',
    content: joinedContent(given(first.get('content')), given(second.get('content'))),
    tool_calls: calls.length > 0 ? calls : undefined,
    reasoning_content: thoughts.length > 0 ? thoughts.join('\n') : undefined,
  })
}

function joinedContent(first: PythonValue, second: PythonValue): PythonValue {
  if (second === undefined || second === '') return first
  if (first === undefined || first === '') return second
  if (typeof first === 'string' && typeof second === 'string') return `${first}\n\n${second}`
  const partsOf = (content: PythonValue): readonly PythonValue[] =>
    typeof content === 'string' ? [dictOf({ type: 'text', text: content })] : listIn(content, 'content')
  return [...partsOf(first), ...partsOf(second)]
}

function flatOutput(output: PythonValue): PythonValue {
  if (!Array.isArray(output)) return output
  return output.map(part => optionalText(dictIn(part, 'a part of output').get('text'), 'text') ?? '').join('')
}

/** What becomes of it depends on the template and the engine's flags. */
function refuseLateSystem(messages: readonly PythonDict[]): void {
  if (messages.some((message, at) => at > 0 && message.get('role') === 'system'))
    refuse("SGLang's flags decide about a system message between others")
  const content = messages[0]?.get('role') === 'system' ? messages[0].get('content') : ''
  if (typeof content !== 'string') refuse('a system message in parts')
}

function functionCall(item: PythonDict): PythonDict {
  return dictOf({
    id: textIn(item.get('call_id'), 'call_id'),
    type: 'function',
    function: dictOf({
      name: textIn(item.get('name'), 'the name of a function call'),
      arguments: textIn(item.get('arguments'), 'arguments'),
    }),
  })
}

function callOutput(item: PythonDict, output: PythonValue): PythonDict {
  return dictOf({ role: 'tool', tool_call_id: textIn(item.get('call_id'), 'call_id'), content: output })
}

function responseTools(body: PythonDict): PythonValue {
  const tools = optionalList(body.get('tools'), 'tools') ?? []
  if (tools.length === 0) return undefined
  return tools.map(value => {
    const tool = dictIn(value, 'a tool')
    const type = optionalText(tool.get('type'), 'type') ?? 'unknown'
    if (type !== 'function') refuse(`a tool of type ${type}`)
    if (given(tool.get('defer_loading')) !== undefined) refuse('a tool with defer_loading')
    return dictOf({
      type: 'function',
      function: dictOf({
        name: textIn(tool.get('name'), 'the name of a tool'),
        description: optionalText(tool.get('description'), 'description'),
        parameters: optionalDict(tool.get('parameters'), 'parameters'),
        strict: tool.get('strict') ?? false,
      }),
    })
  })
}

function responseToolChoice(body: PythonDict): PythonValue {
  const choice = given(body.get('tool_choice'))
  if (choice === undefined || typeof choice === 'string') return choice
  const named = dictIn(choice, 'tool_choice')
  if (named.get('type') !== 'function') refuse('a tool_choice of another type')
  return dictOf({
    type: 'function',
    function: dictOf({ name: textIn(named.get('name'), 'tool_choice.name') }),
  })
}
