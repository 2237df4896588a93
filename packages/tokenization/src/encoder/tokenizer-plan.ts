/**
 * Tokenizer plan: what a tokenizer.json asks for, in the few forms that this encoder does exactly as the
 * reference; or the reason why it asks for something else.
 *
 *   normalizer -> pre_tokenizer -> model (BPE) -> post_processor, and added_tokens before all
 *
 * Everything that is not named here is refused: a step that is nearly right gives prefixes that are nearly
 * right.
 */

import { type JsonObject, wordOf } from '../json-object.ts'
import type { FormName } from './normal-form.ts'
import { type DigitsFirst, planOfRegex, planOfRegexes, type SplitPlan } from './split-plan.ts'

/** The prefix of a text between added tokens, when the text begins there. */
export type PrefixRule =
  | 'none'
  /** By the normalizer, before any text that is not empty. */
  | 'always'
  /** By the pre-tokenizer, where the text does not begin with it already. */
  | 'unless there'
  /** The same, only at the begin of the whole text. */
  | 'at the begin unless there'

/** Every step but the model. */
export interface TokenizerPlan {
  /** Whether symbols are bytes; otherwise characters, and bytes for characters that the vocabulary lacks. */
  readonly isByteLevel: boolean
  readonly form: FormName | undefined
  readonly normalizerPrefix: PrefixRule
  readonly splitPrefix: PrefixRule
  /** The unit that a prefix puts in front. */
  readonly prefixUnit: number
  /** Whether spaces become `▁`: in the normalizer, in the pre-tokenizer, or not. */
  readonly marksSpaces: 'normalizer' | 'pre-tokenizer' | 'no'
  /** Whether every `▁` begins a piece. */
  readonly cutsAtMarks: boolean
  readonly digits: DigitsFirst
  readonly split: SplitPlan
  readonly prefixIds: readonly number[]
  readonly suffixIds: readonly number[]
}

export const SPACE_MARK = '▁'
const SPACE_MARK_UNIT = 0x2581
const BLANK_UNIT = 0x20

/** Thrown inside this folder; `buildEncoderTables` answers with its message. */
export class Refusal extends Error {}

interface Normalizer {
  form: FormName | undefined
  prepends: boolean
  replaces: boolean
}

interface PreTokenizer {
  readonly isByteLevel: boolean
  readonly splitPrefix: PrefixRule
  readonly marksSpaces: boolean
  readonly cutsAtMarks: boolean
  readonly digits: DigitsFirst
  readonly split: SplitPlan
}

/** Reads all but the model and the added tokens. Throws Refusal. */
export function readTokenizerPlan(tokenizer: JsonObject): TokenizerPlan {
  if ((tokenizer['truncation'] ?? null) !== null) throw new Refusal('tokenizer.json truncates')
  if ((tokenizer['padding'] ?? null) !== null) throw new Refusal('tokenizer.json pads')
  const normalizer: Normalizer = { form: undefined, prepends: false, replaces: false }
  readNormalizer(tokenizer['normalizer'] ?? null, normalizer)
  const preTokenizer = readPreTokenizer(tokenizer['pre_tokenizer'] ?? null, normalizer)
  const marks = normalizer.prepends || normalizer.replaces || preTokenizer.marksSpaces
  if (marks && normalizer.form !== undefined)
    throw new Refusal(`the normalizer mixes ${normalizer.form} with other steps`)
  if (preTokenizer.isByteLevel && marks) throw new Refusal('a byte-level model marks spaces')
  if (normalizer.prepends && preTokenizer.splitPrefix !== 'none')
    throw new Refusal('normalizer and pre-tokenizer both put something in front')
  const { prefixIds, suffixIds } = readPostProcessor(tokenizer['post_processor'] ?? null)
  return {
    isByteLevel: preTokenizer.isByteLevel,
    form: normalizer.form,
    normalizerPrefix: normalizer.prepends ? 'always' : 'none',
    splitPrefix: preTokenizer.splitPrefix,
    prefixUnit: preTokenizer.isByteLevel ? BLANK_UNIT : SPACE_MARK_UNIT,
    marksSpaces: normalizer.replaces ? 'normalizer' : preTokenizer.marksSpaces ? 'pre-tokenizer' : 'no',
    cutsAtMarks: preTokenizer.cutsAtMarks,
    digits: preTokenizer.digits,
    split: preTokenizer.split,
    prefixIds,
    suffixIds,
  }
}

function readNormalizer(value: unknown, normalizer: Normalizer): void {
  if (value === null) return
  const step = value as JsonObject
  switch (step['type']) {
    case 'Sequence':
      for (const inner of listOf(step['normalizers'])) readNormalizer(inner, normalizer)
      return
    case 'NFC':
    case 'NFKC':
      if (normalizer.form !== undefined && normalizer.form !== step['type'])
        throw new Refusal('the normalizer has two forms')
      normalizer.form = step['type']
      return
    case 'Prepend':
      if (step['prepend'] !== SPACE_MARK || normalizer.prepends)
        throw new Refusal(`the normalizer prepends ${JSON.stringify(step['prepend'])}`)
      normalizer.prepends = true
      return
    case 'Replace': {
      const pattern = (step['pattern'] as JsonObject | undefined)?.['String']
      if (pattern !== ' ' || step['content'] !== SPACE_MARK)
        throw new Refusal(`the normalizer replaces ${JSON.stringify(step['pattern'])}`)
      normalizer.replaces = true
      return
    }
    default:
      throw new Refusal(`the normalizer has a step ${wordOf(step['type'])}`)
  }
}

function readPreTokenizer(value: unknown, normalizer: Normalizer): PreTokenizer {
  const plain = {
    isByteLevel: false,
    splitPrefix: 'none',
    marksSpaces: false,
    cutsAtMarks: false,
    digits: 'none',
    split: { kind: 'joins' },
  } as const
  if (value === null) return plain
  const step = value as JsonObject
  switch (step['type']) {
    case 'ByteLevel':
      return { ...plain, ...byteLevelOf(step) }
    case 'Sequence':
      return { ...plain, ...sequenceOf(listOf(step['pretokenizers'])) }
    case 'Metaspace':
      return { ...plain, ...metaspaceOf(step) }
    case 'Split': {
      const pattern = (step['pattern'] as JsonObject | undefined)?.['String']
      // Nothing to split at is left by a normalizer that replaces all spaces.
      if (pattern === ' ' && normalizer.replaces && step['behavior'] !== 'Removed') return plain
      throw new Refusal('the pre-tokenizer splits characters that are no bytes')
    }
    default:
      throw new Refusal(`the pre-tokenizer is ${wordOf(step['type'])}`)
  }
}

function byteLevelOf(step: JsonObject): Partial<PreTokenizer> {
  if ((step['use_regex'] ?? true) !== true) throw new Refusal('the pre-tokenizer splits nothing')
  return {
    isByteLevel: true,
    splitPrefix: (step['add_prefix_space'] ?? true) === true ? 'unless there' : 'none',
    split: { kind: 'gpt2' },
  }
}

function sequenceOf(steps: readonly JsonObject[]): Partial<PreTokenizer> {
  const rest = [...steps]
  const last = rest.pop()
  if (last?.['type'] !== 'ByteLevel') throw new Refusal('the pre-tokenizer does not end in bytes')
  let digits: DigitsFirst = 'none'
  if (rest[0]?.['type'] === 'Digits')
    digits = rest.shift()!['individual_digits'] === true ? 'one by one' : 'runs'
  if ((last['add_prefix_space'] ?? true) === true && (rest.length > 0 || digits !== 'none'))
    throw new Refusal('the pre-tokenizer puts a space before every piece')
  if (rest.length === 0) return { ...byteLevelOf(last), digits }
  if ((last['use_regex'] ?? true) === true)
    throw new Refusal("the pre-tokenizer splits by GPT-2's pattern too")
  const regexes = rest.map(regexOf)
  const split = planOfRegexes(regexes)
  if (split !== undefined) return { isByteLevel: true, digits, split }
  const unknown = regexes.find(regex => planOfRegex(regex) === undefined) ?? regexes[0]!
  throw new Refusal(`the pre-tokenizer splits by a pattern that is not known: ${unknown}`)
}

/** The regular expression of a split that keeps every piece, matched or not. */
function regexOf(step: JsonObject, _index: number, steps: readonly JsonObject[]): string {
  if (step['type'] !== 'Split') throw new Refusal(`the pre-tokenizer has a step ${wordOf(step['type'])}`)
  const regex = (step['pattern'] as JsonObject | undefined)?.['Regex']
  if (typeof regex !== 'string') throw new Refusal('the pre-tokenizer splits at a text')
  const inverts = step['invert'] === true
  const isKept = step['behavior'] === 'Isolated'
  // Patterns used alone match every character, so removing unmatched text removes nothing.
  const isAll = steps.length === 1 && step['behavior'] === 'Removed' && inverts
  if (isKept || isAll) return regex
  throw new Refusal(`the pre-tokenizer splits with behavior ${wordOf(step['behavior'])}`)
}

function metaspaceOf(step: JsonObject): Partial<PreTokenizer> {
  if (step['replacement'] !== SPACE_MARK)
    throw new Refusal(`the pre-tokenizer marks spaces by ${JSON.stringify(step['replacement'])}`)
  const scheme = step['add_prefix_space'] === false ? 'never' : (step['prepend_scheme'] ?? 'always')
  const rules: Readonly<Record<string, PrefixRule>> = {
    always: 'unless there',
    first: 'at the begin unless there',
    never: 'none',
  }
  const splitPrefix = rules[wordOf(scheme)]
  if (splitPrefix === undefined) throw new Refusal(`the pre-tokenizer prepends by scheme ${wordOf(scheme)}`)
  return { splitPrefix, marksSpaces: true, cutsAtMarks: (step['split'] ?? true) === true }
}

function readPostProcessor(value: unknown): { prefixIds: readonly number[]; suffixIds: readonly number[] } {
  const none = { prefixIds: [], suffixIds: [] }
  if (value === null) return none
  const step = value as JsonObject
  switch (step['type']) {
    case 'ByteLevel':
      return none
    case 'Sequence': {
      const inner = listOf(step['processors']).filter(processor => processor['type'] !== 'ByteLevel')
      if (inner.length > 1) throw new Refusal('the post-processor has several steps')
      return readPostProcessor(inner[0] ?? null)
    }
    case 'TemplateProcessing':
      return templateOf(step)
    default:
      throw new Refusal(`the post-processor is ${wordOf(step['type'])}`)
  }
}

function templateOf(step: JsonObject): { prefixIds: readonly number[]; suffixIds: readonly number[] } {
  const known = (step['special_tokens'] ?? {}) as Readonly<Record<string, JsonObject>>
  const prefixIds: number[] = []
  const suffixIds: number[] = []
  let sequences = 0
  for (const piece of listOf(step['single'])) {
    const special = piece['SpecialToken'] as JsonObject | undefined
    if (special === undefined) {
      if ((piece['Sequence'] as JsonObject | undefined)?.['id'] !== 'A')
        throw new Refusal('the post-processor has a piece that is neither token nor text')
      sequences++
      continue
    }
    const ids = Object.hasOwn(known, wordOf(special['id'])) ? known[wordOf(special['id'])]!['ids'] : undefined
    if (!Array.isArray(ids) || !ids.every(Number.isInteger))
      throw new Refusal(`the post-processor does not say the ids of ${wordOf(special['id'])}`)
    ;(sequences === 0 ? prefixIds : suffixIds).push(...(ids as number[]))
  }
  if (sequences !== 1) throw new Refusal(`the post-processor has the text ${sequences} times`)
  return { prefixIds, suffixIds }
}

function listOf(value: unknown): readonly JsonObject[] {
  if (!Array.isArray(value)) throw new Refusal('a list of steps is missing')
  return value as JsonObject[]
}
