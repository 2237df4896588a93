/**
 * The files of a Hugging Face tokenizer directory, and what in them @huggingface/tokenizers would read
 * otherwise than the native library.
 *
 *   tokenizer.json            the vocabulary and every step of the encoding
 *   tokenizer_config.json     special tokens, and the chat template of older models
 *   chat_template.jinja       the chat template; wins over the one in tokenizer_config.json
 *   special_tokens_map.json   special tokens of older models, where tokenizer_config.json has none
 */

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseJson } from '@homing/base'
import { type ModelBytes, splitModel } from './encoder/model-bytes.ts'
import { TokenizerLoadError } from './errors.ts'
import type { JsonObject } from './json-object.ts'

/** The chat templates of a model; `toolUse` is the one for requests with tools. */
export interface TemplateSources {
  readonly standard: string
  readonly toolUse: string | undefined
}

/** What a directory holds. */
export interface TokenizerFiles {
  /** tokenizer.json, but for vocabulary and merges where `modelBytes` has them. */
  readonly tokenizer: JsonObject
  readonly modelBytes: ModelBytes | undefined
  /** The bytes of tokenizer.json. */
  readonly tokenizerFile: Uint8Array
  readonly config: JsonObject
  readonly templates: TemplateSources | undefined
  /** bos_token, eos_token, … as templates see them. */
  readonly specialTokens: ReadonlyMap<string, string>
  /** Why this tokenizer would be read otherwise than the engine reads it; undefined when it would not. */
  readonly hazard: string | undefined
  /** It has the vocabulary of gpt-oss: engines write such chats in the Harmony form, without the template. */
  readonly isHarmony: boolean
}

const SPECIAL_NAMES = [
  'bos_token',
  'eos_token',
  'unk_token',
  'sep_token',
  'pad_token',
  'cls_token',
  'mask_token',
]
const MISREAD_BEHAVIORS: ReadonlySet<unknown> = new Set([
  'MergedWithPrevious',
  'MergedWithNext',
  'Contiguous',
])

/** Reads the directory. Throws TokenizerLoadError when a file is missing or is no JSON. */
export async function readTokenizerFiles(directory: string): Promise<TokenizerFiles> {
  const [file, config, template, legacySpecials] = await Promise.all([
    readBytes(directory, 'tokenizer.json'),
    readJson(directory, 'tokenizer_config.json'),
    readText(directory, 'chat_template.jinja'),
    readJson(directory, 'special_tokens_map.json'),
  ])
  if (file === undefined) throw new TokenizerLoadError(directory, 'there is no tokenizer.json')
  const whole = (): JsonObject => parseTokenizer(directory, file)
  const split = splitModel(file)
  const tokenizer = split?.rest ?? whole()
  return {
    tokenizer,
    modelBytes: split === undefined ? undefined : { vocab: split.vocab, merges: split.merges, whole },
    tokenizerFile: file,
    config: config ?? {},
    templates:
      template === undefined
        ? templatesOf(config?.['chat_template'])
        : { standard: template, toolUse: undefined },
    specialTokens: specialTokensOf(config ?? {}, legacySpecials ?? {}),
    hazard: tokenizerHazard(tokenizer),
    isHarmony: hasHarmonyTokens(tokenizer),
  }
}

/** Parses the bytes of a tokenizer.json. Throws TokenizerLoadError. */
export function parseTokenizer(directory: string, file: Uint8Array): JsonObject {
  const { buffer, byteOffset, byteLength } = file
  return parseObject(directory, 'tokenizer.json', Buffer.from(buffer, byteOffset, byteLength).toString())
}

async function readText(directory: string, name: string): Promise<string | undefined> {
  return (await readBytes(directory, name))?.toString()
}

async function readBytes(directory: string, name: string): Promise<Buffer | undefined> {
  try {
    return await readFile(join(directory, name))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new TokenizerLoadError(directory, `${name} cannot be read: ${(error as Error).message}`, error)
  }
}

async function readJson(directory: string, name: string): Promise<JsonObject | undefined> {
  const text = await readText(directory, name)
  return text === undefined ? undefined : parseObject(directory, name, text)
}

function parseObject(directory: string, name: string, text: string): JsonObject {
  try {
    const value = parseJson(text)
    if (typeof value === 'object' && value !== null) return value as JsonObject
  } catch (error) {
    throw new TokenizerLoadError(directory, `${name} is no JSON`, error)
  }
  throw new TokenizerLoadError(directory, `${name} is no JSON object`)
}

function templatesOf(value: unknown): TemplateSources | undefined {
  if (typeof value === 'string') return { standard: value, toolUse: undefined }
  if (!Array.isArray(value)) return undefined
  const named = new Map<unknown, unknown>(value.map(entry => [entry?.name, entry?.template]))
  const standard = named.get('default')
  const toolUse = named.get('tool_use')
  if (typeof standard !== 'string') return undefined
  return { standard, toolUse: typeof toolUse === 'string' ? toolUse : undefined }
}

function specialTokensOf(config: JsonObject, legacy: JsonObject): ReadonlyMap<string, string> {
  const tokens = new Map<string, string>()
  for (const name of SPECIAL_NAMES) {
    const value = config[name] ?? legacy[name]
    const content = typeof value === 'object' && value !== null ? (value as JsonObject)['content'] : value
    if (typeof content === 'string') tokens.set(name, content)
  }
  return tokens
}

/** Tokens that only the Harmony form has; `<|constrain|>` says how the arguments of a call are written. */
const HARMONY_TOKENS = ['<|channel|>', '<|constrain|>', '<|call|>', '<|return|>'] as const

function hasHarmonyTokens(tokenizer: JsonObject): boolean {
  const added = (tokenizer['added_tokens'] as JsonObject[] | undefined) ?? []
  const contents = new Set(added.map(({ content }) => content))
  return HARMONY_TOKENS.every(token => contents.has(token))
}

/** Looks for what the README of the library and its source say that it does not do. */
function tokenizerHazard(tokenizer: JsonObject): string | undefined {
  const model = tokenizer['model'] as JsonObject | undefined
  if (model?.['dropout']) return 'the model of the tokenizer has dropout'
  for (const token of (tokenizer['added_tokens'] as JsonObject[] | undefined) ?? []) {
    if (token['single_word']) return `the added token ${token['content']} matches single words only`
  }
  const pending: unknown[] = [tokenizer['pre_tokenizer'], tokenizer['normalizer']]
  while (pending.length > 0) {
    const step = pending.pop()
    if (typeof step !== 'object' || step === null) continue
    const { behavior } = step as JsonObject
    if (MISREAD_BEHAVIORS.has(behavior)) return `the pre-tokenizer splits with behavior ${behavior}`
    pending.push(...Object.values(step))
  }
  return undefined
}
