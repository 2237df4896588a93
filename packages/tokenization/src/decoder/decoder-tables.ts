/**
 * Decoder tables: the bytes that each token id stands for, in one SharedArrayBuffer for all threads.
 *
 *   starts   tokenCount + 1 words: the bytes of id i are those from starts[i] to starts[i + 1]
 *   special  tokenCount bytes: 1 for a special token, which answers leave out
 *   bytes    of all tokens in a row
 *
 * Never written after they are built. Cost: some 9 bytes a token and its bytes; 128 k tokens take 2 MB.
 */

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseJson } from '@homing/base'
import { TokenBytes } from '../encoder/token-bytes.ts'
import { TokenizerLoadError } from '../errors.ts'
import type { JsonObject } from '../json-object.ts'
import { readTokenizerFiles, type TokenizerFiles } from '../tokenizer-files.ts'
import { decoderSteps } from './decoder-steps.ts'

/** Structured-clonable. */
export interface DecoderTables {
  readonly memory: SharedArrayBuffer
  readonly tokenCount: number
  /** Ids with which the model ends its answer. */
  readonly endIds: readonly number[]
}

/** The largest vocabularies known have 262,144 tokens. */
const VOCABULARY_IDS_MAX = 4_194_304
const START_BYTES = 4

/** Reads a tokenizer directory. Throws TokenizerLoadError; so it does for a decoder that is not known. */
export async function loadDecoder(directory: string): Promise<DecoderTables> {
  const files = await readTokenizerFiles(directory)
  const generation = await readGeneration(directory)
  const built = buildDecoderTables(files, generation)
  if ('refusal' in built) throw new TokenizerLoadError(directory, built.refusal)
  return built
}

/** `generation`: the content of generation_config.json. */
export function buildDecoderTables(
  { tokenizer, modelBytes, config, specialTokens }: TokenizerFiles,
  generation: unknown,
): DecoderTables | { readonly refusal: string } {
  const byteLevel = new TokenBytes(true)
  const toBytes = decoderSteps(tokenizer['decoder'], token => byteLevel.of(token))
  if ('refusal' in toBytes) return toBytes
  const whole = modelBytes?.whole() ?? tokenizer
  const tokens = tokensOf(whole['model'])
  if (tokens === undefined) return { refusal: 'the model of its tokenizer.json has no vocabulary' }
  const special = new Set<number>()
  for (const added of addedTokens(whole['added_tokens'])) {
    tokens.set(added.id, added.content)
    if (added.isSpecial) special.add(added.id)
  }
  const tokenCount = maxOf(tokens.keys()) + 1
  if (tokenCount > VOCABULARY_IDS_MAX)
    return { refusal: `it has ids up to ${tokenCount - 1}, beyond ${VOCABULARY_IDS_MAX}` }
  const bytesOf = new Map<number, Uint8Array>()
  let bytes = 0
  for (const [id, token] of tokens) {
    const own = toBytes(token)
    bytesOf.set(id, own)
    bytes += own.length
  }
  const memory = new SharedArrayBuffer((tokenCount + 1) * START_BYTES + tokenCount + bytes)
  const { starts, isSpecial, bytes: all } = viewsOf({ memory, tokenCount })
  let at = 0
  for (let id = 0; id < tokenCount; id++) {
    starts[id] = at
    isSpecial[id] = special.has(id) ? 1 : 0
    const own = bytesOf.get(id)
    if (own === undefined) continue
    all.set(own, at)
    at += own.length
  }
  starts[tokenCount] = at
  const endIds = endIdsOf(generation, specialTokens.get('eos_token') ?? config['eos_token'], tokens)
  return { memory, tokenCount, endIds }
}

/** The arrays in the memory. */
export function viewsOf({ memory, tokenCount }: Pick<DecoderTables, 'memory' | 'tokenCount'>): {
  readonly starts: Int32Array
  readonly isSpecial: Uint8Array
  readonly bytes: Uint8Array
} {
  const flagsAt = (tokenCount + 1) * START_BYTES
  return {
    starts: new Int32Array(memory, 0, tokenCount + 1),
    isSpecial: new Uint8Array(memory, flagsAt, tokenCount),
    bytes: new Uint8Array(memory, flagsAt + tokenCount),
  }
}

/** By id. BPE and WordPiece have an object, Unigram a list of pairs. */
function tokensOf(model: unknown): Map<number, string> | undefined {
  const vocab = (model as JsonObject | undefined)?.['vocab']
  if (typeof vocab !== 'object' || vocab === null) return undefined
  const tokens = new Map<number, string>()
  if (Array.isArray(vocab)) {
    for (const [id, entry] of vocab.entries()) if (typeof entry?.[0] === 'string') tokens.set(id, entry[0])
  } else for (const [token, id] of Object.entries(vocab)) if (isId(id)) tokens.set(id, token)
  return tokens
}

function* addedTokens(
  value: unknown,
): Generator<{ readonly id: number; readonly content: string; readonly isSpecial: boolean }> {
  for (const entry of Array.isArray(value) ? (value as readonly (JsonObject | null)[]) : []) {
    const { id, content, special } = entry ?? {}
    if (isId(id) && typeof content === 'string') yield { id, content, isSpecial: special === true }
  }
}

/** Of generation_config.json where it has one, which may name several; and the one of the tokenizer. */
function endIdsOf(generation: unknown, endToken: unknown, tokens: ReadonlyMap<number, string>): number[] {
  const named = (generation as JsonObject | undefined)?.['eos_token_id']
  const ids = new Set((Array.isArray(named) ? named : [named]).filter(isId))
  for (const [id, token] of tokens) if (token === endToken) ids.add(id)
  return [...ids]
}

async function readGeneration(directory: string): Promise<unknown> {
  let text: string
  try {
    text = await readFile(join(directory, 'generation_config.json'), 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new TokenizerLoadError(
      directory,
      `generation_config.json cannot be read: ${(error as Error).message}`,
      error,
    )
  }
  try {
    return parseJson(text)
  } catch (error) {
    throw new TokenizerLoadError(directory, 'generation_config.json is no JSON', error)
  }
}

function isId(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/** Of none: -1. */
function maxOf(ids: Iterable<number>): number {
  let max = -1
  for (const id of ids) max = Math.max(max, id)
  return max
}
