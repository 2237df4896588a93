/**
 * Chat options: how engines were told to write prompts of chats, where the tokenizer directory does not say.
 * Each option is given for a model, for its base, or for all that have none of their own.
 */

import type { ContentFormat } from '@homing/tokenization'

/** By model name, '' for all that have none of their own. */
type ByModel<T> = ReadonlyMap<string, T>

export interface GivenChatOptions {
  /** Texts of templates that replace those of the directories. */
  readonly templates: ByModel<string>
  /** Undefined: as the template has it. */
  readonly contentFormats: ByModel<ContentFormat | undefined>
  readonly templateKwargs: ByModel<Readonly<Record<string, unknown>>>
}

/** The options of one model. */
export interface ChatOptions {
  /** Equal for equal options of one process. */
  readonly id: string
  readonly chatTemplate: string | undefined
  readonly contentFormat: ContentFormat | undefined
  readonly defaultTemplateKwargs: Readonly<Record<string, unknown>> | undefined
}

export interface ChatOptionSettings {
  /** `[MODEL=]FORMAT` */
  readonly chatTemplateContentFormats: readonly string[]
  /** `[MODEL=]JSON` */
  readonly defaultChatTemplateKwargs: readonly string[]
}

/** `templates`: their texts, by model. The settings are checked. */
export function givenChatOptions(
  { chatTemplateContentFormats, defaultChatTemplateKwargs }: ChatOptionSettings,
  templates: ByModel<string>,
): GivenChatOptions {
  const formats = chatTemplateContentFormats.map(text => {
    const equals = text.indexOf('=')
    return [text.slice(0, Math.max(0, equals)), text.slice(equals + 1)] as const
  })
  const kwargs = defaultChatTemplateKwargs.map(text => {
    const open = text.indexOf('{')
    return [text.slice(0, Math.max(0, open - 1)), JSON.parse(text.slice(open))] as const
  })
  return {
    templates,
    contentFormats: new Map(formats.map(([model, text]) => [model, CONTENT_FORMATS[text]])),
    templateKwargs: new Map(kwargs),
  }
}

const CONTENT_FORMATS: Readonly<Record<string, ContentFormat>> = { string: 'string', openai: 'parts' }

/** Undefined: none are given. */
export function chatOptionsOf(given: GivenChatOptions, name: string, base: string): ChatOptions | undefined {
  const nameIn = (options: ByModel<unknown>) => [name, base, ''].find(model => options.has(model))
  const names = [given.templates, given.contentFormats, given.templateKwargs].map(nameIn)
  if (names.every(model => model === undefined)) return undefined
  const [template = '', format = '', kwargs = ''] = names
  return {
    id: JSON.stringify(names),
    chatTemplate: given.templates.get(template),
    contentFormat: given.contentFormats.get(format),
    defaultTemplateKwargs: given.templateKwargs.get(kwargs),
  }
}
