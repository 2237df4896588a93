/**
 * Prompt view: the request whose prompt is read. For a chat or a completion, this is the body itself. For
 * Messages and Responses, it is the chat that the engine makes from the body: as values, and as bytes only
 * if needed.
 */

import { type RequestFields, type RequestScan, scanRequest } from '@homing/openai'
import {
  chatOfMessages,
  chatOfResponses,
  type DisabledEffort,
  dumpJson,
  type PythonDict,
  RenderingRefusedError,
} from '@homing/tokenization'
import type { ReadBody } from './body-memory.ts'
import type { ModelEntry } from './model-table.ts'
import type { CompletionRoute } from './read-request.ts'

export interface PromptView {
  /** As `readRequest` reads it; of a chat that was made, only `promptShape` is of the chat. */
  readonly request: RequestFields
  readonly values: () => PythonDict | undefined
  readonly body: Uint8Array
  readonly scan: RequestScan
  /** It was made of another form: to look into its bytes is dear. */
  readonly isConverted: boolean
}

/** Rules for a Messages request that depend on the engine's template. */
export interface MessagesRules {
  readonly mergesSystem: boolean
  /** Undefined: not known. */
  readonly disabledEffort: DisabledEffort | undefined
}

/** Another form than a chat or a completion. */
export type ConvertedRoute = 'messages' | 'responses'

export function isConverted(route: CompletionRoute): route is ConvertedRoute {
  return route === 'messages' || route === 'responses'
}

/** The chat that the engine of `entry` makes of the body, or why that is not known. */
export function convertedView(
  route: ConvertedRoute,
  { values }: ReadBody,
  request: RequestFields,
  { dialect }: ModelEntry,
  { mergesSystem, disabledEffort }: MessagesRules,
): PromptView | { readonly reason: string } {
  try {
    const given = values()
    if (given === undefined) return { reason: 'the body is no JSON that engines read' }
    const chat =
      route === 'messages'
        ? chatOfMessages(given, dialect, mergesSystem, disabledEffort)
        : chatOfResponses(given, dialect)
    return new ConvertedView(chat, request)
  } catch (thrown) {
    if (!(thrown instanceof RenderingRefusedError)) throw thrown
    return { reason: thrown.message }
  }
}

class ConvertedView implements PromptView {
  readonly request: RequestFields
  readonly isConverted = true
  readonly #chat: PythonDict
  #body: Uint8Array | undefined
  #scan: RequestScan | undefined

  constructor(chat: PythonDict, request: RequestFields) {
    this.#chat = chat
    this.request = { ...request, promptShape: 'messages', prompt: undefined }
  }

  readonly values = (): PythonDict => this.#chat

  get body(): Uint8Array {
    this.#body ??= new TextEncoder().encode(dumpJson(this.#chat))
    return this.#body
  }

  get scan(): RequestScan {
    this.#scan ??= scanRequest(this.body)
    return this.#scan
  }
}
