/**
 * A chat request to the variables of its template, by the rules of the engine that will serve it.
 *
 *                     vllm                                     sglang
 *   content parts     joined by a line end, or kept            joined by a space, or kept
 *   absent content    '' (or no parts)                         ''
 *   null keys         dropped by the engine's own form         dropped
 *   arguments         JSON text to dict, '' to {}              JSON text to dict
 *   reasoning         as `reasoning` and `reasoning_content`   as `reasoning_content`
 *   tools             {type, function: {name, description,     {description, name, parameters,
 *                     parameters, strict?}}                    strict}
 *   tool_choice none  tools stay, unless told otherwise        no tools
 *   continuation      the template, cut after the message      the prompt, then the message
 *
 * What an engine would answer with an error, or what its versions do differently, is delegated to it:
 * it costs a round trip, where a guess costs the prefix. Media are answered as unsupported.
 *
 * Source: vLLM 0.32 (compared by the parity tests); SGLang 0.5 (from its description, not compared).
 */

import type { ContentFormat, EngineDialect } from './content-format.ts'
import { RenderingRefusedError } from './errors.ts'
import { tryParseJson } from './json.ts'
import { isTruthy, type PythonDict, type PythonKey, type PythonValue } from './python-value.ts'

/** What the operator of the engine has set on its command line. */
export interface ChatServerOptions {
  readonly dialect: EngineDialect
  /** `--chat-template-content-format`, when it is not `auto`. */
  readonly contentFormat?: ContentFormat | undefined
  /** `--default-chat-template-kwargs`. */
  readonly defaultTemplateKwargs?: Readonly<Record<string, unknown>> | undefined
  /** `--exclude-tools-when-tool-choice-none` of vLLM. */
  readonly excludeToolsWhenToolChoiceNone?: boolean | undefined
}

/** What the template is rendered with, and what follows. */
export interface PreparedChat {
  readonly messages: PythonDict[]
  readonly variables: PythonDict
  /** The template's own continuation: render with a mark after the last message and cut there. */
  readonly continueFinalMessage: boolean
  /** SGLang's continuation: text that is encoded by itself after the prompt. */
  readonly textAfter: string
  readonly addSpecialTokens: boolean
}

/** The request contains an image, a sound or another medium, whose tokens only the engine knows. */
export class MediaContentError extends Error {}

const TEXT_PARTS: ReadonlyMap<string, string> = new Map([
  ['text', 'text'],
  ['input_text', 'text'],
  ['output_text', 'text'],
  ['refusal', 'refusal'],
  ['thinking', 'thinking'],
])
/** The fields of vLLM's content parts; others of a text part are shown to the template. */
const PART_FIELDS: ReadonlySet<PythonKey> = new Set(
  (
    'audio_embeds audio_url closed data file image_embeds image_pil image_url input_audio name ' +
    'prompt_cache_breakpoint refusal text thinking type uuid video_embeds video_url'
  ).split(' '),
)
/** Keys of chat_template_kwargs that would change the call itself, not a variable. */
const REFUSED_KWARGS: ReadonlySet<string> = new Set(
  (
    'chat_template conversation documents max_length messages padding return_assistant_tokens_mask return_dict ' +
    'return_tensors tokenize tokenizer_kwargs tools truncation'
  ).split(' '),
)
/** Text of Claude Code that differs in every request; engines leave it out, so that prefixes stay equal. */
export const BILLING_HEADER = 'x-anthropic-billing-header'

/**
 * Prepares the request for its template. `format` is what the engine detects for the template and
 * `knowsDeveloper` whether the template names the developer role. Throws RenderingRefusedError for
 * what the engine must answer itself, MediaContentError for media.
 */
export function prepareChat(
  body: PythonDict,
  options: ChatServerOptions,
  format: ContentFormat,
  knowsDeveloper: boolean,
): PreparedChat {
  for (const name of ['chat_template', 'truncate_prompt_tokens', 'prompt_embeds']) {
    refuseIf(isSet(body.get(name)), `the request sets ${name}`)
  }
  const transfer = body.get('kv_transfer_params')
  refuseIf(
    transfer instanceof Map && isSet(transfer.get('prompt_token_ids')),
    'the request carries token ids',
  )
  const kwargs = dictOrNone(body.get('chat_template_kwargs'), 'chat_template_kwargs') ?? new Map()
  for (const name of kwargs.keys()) refuseIf(REFUSED_KWARGS.has(name), `chat_template_kwargs sets ${name}`)

  const isContinued = isTruthy(body.get('continue_final_message'))
  const source = list(body.get('messages'), 'messages').map(message => dict(message, 'a message'))
  refuseIf(source.length === 0, 'the request has no messages')
  const addSpecialTokens = isTruthy(body.get('add_special_tokens'))
  const variables: PythonDict = new Map()
  for (const [name, value] of Object.entries(options.defaultTemplateKwargs ?? {})) {
    variables.set(name, tryParseJson(JSON.stringify(value)))
  }
  // vLLM takes these two values for "not given".
  const isDropped = (value: PythonValue) => options.dialect === 'vllm' && (value === null || value === 'auto')
  for (const [name, value] of kwargs) if (!isDropped(value)) variables.set(name, value)

  if (options.dialect === 'sglang') {
    const messages = source.map(message => sglangMessage(message, format))
    const last = messages.at(-1)
    let textAfter = ''
    if (isContinued && last?.get('role') === 'assistant') {
      textAfter = text(last.get('content'), 'the last message')
      messages.pop()
      refuseIf(messages.length === 0, 'the request has no messages')
    }
    const effort = body.get('reasoning_effort')
    if (isSet(effort) && !kwargs.has('reasoning_effort')) variables.set('reasoning_effort', effort)
    variables.set('tools', sglangTools(body))
    variables.set('documents', null)
    variables.set('add_generation_prompt', true)
    return { messages, variables, continueFinalMessage: false, textAfter, addSpecialTokens: false }
  }

  let messages = source.map(message => vllmMessage(message, format))
  if (!knowsDeveloper && messages.some(message => message.get('role') === 'developer')) {
    messages = mergeSystemMessages(messages.map(withoutDeveloper))
  }
  const adds = body.get('add_generation_prompt') ?? true
  const addsPrompt = isTruthy(adds)
  refuseIf(typeof adds !== 'boolean', 'add_generation_prompt is no bool')
  refuseIf(isContinued && addsPrompt, 'continue_final_message needs add_generation_prompt: false')
  setUnlessDefault(variables, 'reasoning_effort', body.get('reasoning_effort'))
  if (isSet(body.get('reasoning_effort')) && !kwargs.has('enable_thinking')) {
    variables.set('enable_thinking', body.get('reasoning_effort') !== 'none')
  }
  const documents = body.get('documents') ?? null
  if (documents !== null) for (const document of list(documents, 'documents')) dict(document, 'a document')
  variables.set('tools', vllmTools(body, options))
  variables.set('documents', documents)
  variables.set('add_generation_prompt', addsPrompt)
  return { messages, variables, continueFinalMessage: isContinued, textAfter: '', addSpecialTokens }
}

function vllmMessage(message: PythonDict, format: ContentFormat): PythonDict {
  const role = text(message.get('role'), 'role')
  const content = message.get('content') ?? null
  refuseIf(content === null && role !== 'assistant', `a ${role} message without content`)
  const parts: PythonValue[] =
    content === null ? [] : typeof content === 'string' ? [content] : list(content, 'content')
  const prepared: PythonDict = new Map<string, PythonValue>([['role', role]])
  const shown = parts.flatMap(part => vllmPart(part, format))
  if (role === 'system') {
    const texts = shown.map(part => (part instanceof Map ? part.get('text') : part))
    const isStamped = texts.some(part => typeof part === 'string' && part.startsWith(BILLING_HEADER))
    refuseIf(isStamped, 'versions of vLLM differ in dropping the billing header')
  }
  if (format === 'string') prepared.set('content', shown.filter(part => part !== '').join('\n'))
  else if (role !== 'tool' || shown.some(isReference)) prepared.set('content', shown)
  else prepared.set('content', shown.map(part => (part as PythonDict).get('text')).join('\n'))

  if (role === 'assistant') {
    const calls = message.get('tool_calls') ?? null
    if (calls !== null && list(calls, 'tool_calls').length > 0) {
      prepared.set('tool_calls', list(calls, 'tool_calls').map(vllmToolCall))
    }
    const reasoning = message.get('reasoning') ?? message.get('reasoning_content') ?? null
    if (reasoning !== null) {
      prepared.set('reasoning', text(reasoning, 'reasoning'))
      prepared.set('reasoning_content', reasoning)
    }
  } else if (role === 'tool' && message.has('tool_call_id')) {
    prepared.set('tool_call_id', text(message.get('tool_call_id'), 'tool_call_id'))
  }
  for (const name of ['name', 'task']) {
    if (!message.has(name)) continue
    prepared.set(name, text(message.get(name), name))
  }
  if (role === 'developer') {
    refuseIf(isSet(message.get('tools')), 'a developer message with tools')
    prepared.set('tools', null)
  }
  return prepared
}

function vllmPart(part: PythonValue, format: ContentFormat): PythonValue[] {
  if (typeof part === 'string') return [format === 'string' ? part : partDict(part)]
  const fields = dict(part, 'a content part')
  const kind = fields.get('type')
  if (kind === 'tool_reference' && !isSet(fields.get('uuid'))) {
    const name = text(fields.get('name'), 'name')
    return [
      format === 'string'
        ? name
        : new Map([
            ['type', kind],
            ['name', name],
          ]),
    ]
  }
  const shown = textOfPart(fields)
  if (format === 'string') return [shown]
  const result = partDict(shown)
  for (const [name, value] of fields) if (!PART_FIELDS.has(name)) result.set(name, value)
  return [result]
}

function vllmToolCall(value: PythonValue): PythonValue {
  const call = dict(value, 'a tool call')
  refuseIf(
    call.get('type') !== 'function' || typeof call.get('id') !== 'string',
    'a tool call of another form',
  )
  const made = dict(call.get('function'), 'function')
  const written = text(made.get('arguments'), 'arguments')
  const parsed = written === '' ? new Map() : tryParseJson(written)
  refuseIf(!(parsed instanceof Map), 'versions of vLLM differ in arguments that are no JSON object')
  // The engine puts the fields that it knows first.
  return ordered(
    call,
    ['id', 'function', 'type'],
    [
      [
        'function',
        ordered(
          made,
          ['arguments', 'name'],
          [
            ['arguments', parsed],
            ['name', text(made.get('name'), 'name')],
          ],
        ),
      ],
    ],
  )
}

function vllmTools(body: PythonDict, options: ChatServerOptions): PythonValue {
  const tools = body.get('tools') ?? null
  if (tools === null) return null
  refuseIf(list(tools, 'tools').length === 0, 'the list of tools is empty')
  if (options.excludeToolsWhenToolChoiceNone && body.get('tool_choice') === 'none') return null
  return list(tools, 'tools').map(value => {
    const tool = dict(value, 'a tool')
    refuseIf((tool.get('type') ?? 'function') !== 'function', 'a tool that is no function')
    refuseIf(tool.get('defer_loading') !== undefined, 'a tool with defer_loading')
    const made = dict(tool.get('function'), 'function')
    refuseIf(made.get('defer_loading') !== undefined, 'a tool with defer_loading')
    const shown: PythonDict = new Map<string, PythonValue>([
      ['name', text(made.get('name'), 'name')],
      ['description', textOrNone(made.get('description'), 'description')],
      ['parameters', dictOrNone(made.get('parameters'), 'parameters') ?? null],
    ])
    const strict = made.get('strict') ?? null
    refuseIf(strict !== null && typeof strict !== 'boolean', 'strict is no bool')
    if (strict !== null) shown.set('strict', strict)
    return new Map<string, PythonValue>([
      ['type', 'function'],
      ['function', shown],
    ])
  })
}

function sglangMessage(message: PythonDict, format: ContentFormat): PythonDict {
  const prepared: PythonDict = new Map()
  const content = message.get('content') ?? ''
  prepared.set('role', text(message.get('role'), 'role'))
  if (typeof content === 'string') prepared.set('content', content)
  else {
    const texts = list(content, 'content').map(part => textOfPart(dict(part, 'a content part')))
    prepared.set('content', format === 'string' ? texts.join(' ') : texts.map(partDict))
  }
  for (const name of ['tool_call_id', 'name', 'reasoning_content']) {
    const value = message.get(name) ?? null
    if (value !== null) prepared.set(name, text(value, name))
  }
  const calls = message.get('tool_calls') ?? null
  if (calls !== null) {
    prepared.set(
      'tool_calls',
      list(calls, 'tool_calls').map(value => {
        const call = dict(value, 'a tool call')
        const made = dict(call.get('function'), 'function')
        const written = made.get('arguments') ?? null
        const parsed = typeof written === 'string' ? tryParseJson(written) : written
        refuseIf(parsed === undefined, 'arguments that are not JSON')
        return new Map<string, PythonValue>([
          ['id', call.get('id') ?? null],
          ['index', call.get('index') ?? null],
          ['type', call.get('type') ?? 'function'],
          [
            'function',
            new Map<string, PythonValue>([
              ['name', made.get('name') ?? null],
              ['arguments', parsed],
            ]),
          ],
        ])
      }),
    )
  }
  return prepared
}

function sglangTools(body: PythonDict): PythonValue {
  const tools = body.get('tools') ?? null
  const choice = body.get('tool_choice') ?? null
  if (tools === null || list(tools, 'tools').length === 0 || choice === 'none') return null
  const functions = list(tools, 'tools').map(tool => dict(dict(tool, 'a tool').get('function'), 'function'))
  const wanted = choice instanceof Map ? dict(choice.get('function'), 'tool_choice').get('name') : undefined
  return functions
    .filter(made => wanted === undefined || made.get('name') === wanted)
    .map(
      made =>
        new Map<string, PythonValue>([
          ['description', made.get('description') ?? null],
          ['name', made.get('name') ?? null],
          ['parameters', made.get('parameters') ?? null],
          ['strict', made.get('strict') ?? false],
        ]),
    )
}

function textOfPart(part: PythonDict): string {
  const kind = part.get('type')
  const field = typeof kind === 'string' ? TEXT_PARTS.get(kind) : undefined
  if (field === undefined || isSet(part.get('uuid'))) {
    throw new MediaContentError(`a content part of type ${typeof kind === 'string' ? kind : 'unknown'}`)
  }
  return text(part.get(field), field)
}

function partDict(shown: string): PythonDict {
  return new Map([
    ['type', 'text'],
    ['text', shown],
  ])
}

function isReference(part: PythonValue): boolean {
  return part instanceof Map && part.get('type') === 'tool_reference'
}

function withoutDeveloper(message: PythonDict): PythonDict {
  if (message.get('role') !== 'developer') return message
  const changed = new Map(message)
  changed.set('role', 'system')
  changed.delete('tools')
  return changed
}

/** vLLM puts all system messages in one at the front, once a developer message has made a second. */
function mergeSystemMessages(messages: PythonDict[]): PythonDict[] {
  const isSystem = (message: PythonDict) => message.get('role') === 'system'
  if (!messages.some((message, i) => i > 0 && isSystem(message))) return messages
  const contents = messages.filter(isSystem).map(message => {
    const content = message.get('content')
    if (!Array.isArray(content)) return content
    return content.map(part => (part as PythonDict).get('text')).join('\n')
  })
  const merged: PythonDict = new Map([
    ['role', 'system'],
    ['content', contents.filter(content => content !== '').join('\n\n')],
  ])
  return [merged, ...messages.filter(message => !isSystem(message))]
}

/** `source` with the `first` keys in front, and some values replaced. */
function ordered(
  source: PythonDict,
  first: readonly PythonKey[],
  replaced: readonly (readonly [PythonKey, PythonValue])[],
): PythonDict {
  const changed = new Map([...source, ...replaced])
  const names = [
    ...first.filter(name => changed.has(name)),
    ...[...changed.keys()].filter(name => !first.includes(name)),
  ]
  return new Map(names.map(name => [name, changed.get(name)]))
}

function setUnlessDefault(variables: PythonDict, name: string, value: PythonValue): void {
  if (isSet(value) && value !== 'auto') variables.set(name, value)
}

function isSet(value: PythonValue): boolean {
  return value !== undefined && value !== null
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

function dictOrNone(value: PythonValue, name: string): PythonDict | undefined {
  return value === undefined || value === null ? undefined : dict(value, name)
}

function text(value: PythonValue, name: string): string {
  if (typeof value !== 'string') throw new RenderingRefusedError(`${name} is no text`)
  return value
}

function textOrNone(value: PythonValue, name: string): string | null {
  return value === undefined || value === null ? null : text(value, name)
}
