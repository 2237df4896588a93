/**
 * Encoder tables: what every thread that encodes with one tokenizer shares. One SharedArrayBuffer holds the
 * vocabulary, the merges and the classes of characters; a description that can be sent between threads says
 * where each lies and what the steps are.
 *
 * They are built once from a parsed tokenizer.json and, but for what merging a token gives (./vocabulary.ts),
 * never written again. Sizes: up to 25 bytes a merge, up to 72 and its bytes a token; 128 k tokens take 10 to
 * 13 MB.
 */

import { type JsonObject, wordOf } from '../json-object.ts'
import { type AddedToken, mayOverlap } from './added-tokens.ts'
import { buildByteRanks } from './byte-pairs.ts'
import { buildCharTable, CharTable } from './char-table.ts'
import type { ModelBytes } from './model-bytes.ts'
import { NormalForm } from './normal-form.ts'
import { checkModel, type ModelArrays, madeTokens, readModel, readModelBytes } from './read-model.ts'
import { buildJoins } from './scan-joins.ts'
import { packSections, type Section } from './shared-sections.ts'
import { Refusal, readTokenizerPlan, SPACE_MARK, type TokenizerPlan } from './tokenizer-plan.ts'
import { CLASS_RUNS, FORM_RUNS, NUMERIC_RUNS, WORD_RUNS } from './unicode-data.ts'

/** The tables of one tokenizer, for any number of threads. */
export interface EncoderTables {
  readonly memory: SharedArrayBuffer
  readonly description: EncoderDescription
}

/** Structured-clonable. */
export interface EncoderDescription {
  readonly sections: Readonly<Record<SectionName, Section>>
  readonly plan: TokenizerPlan
  readonly addedTokens: readonly AddedToken[]
  /** Whether a piece that is a token of the vocabulary is that token, even if merges give other ids. */
  readonly ignoresMerges: boolean
  /** Tokens of the vocabulary that no bytes make, such as `<｜User｜>`. */
  readonly otherTokens: ReadonlyMap<string, number>
}

export type SectionName =
  | 'slots'
  | 'starts'
  | 'bytes'
  | 'ids'
  | 'merges'
  | 'mergeSlots'
  | 'byteRanks'
  | 'byteIds'
  | 'joinAscii'
  | 'joinPairs'
  | 'seamPairs'
  | `${'class' | 'numeric' | 'form' | 'word'}${'Bmp' | 'BlockOf' | 'Blocks'}`

/**
 * Tables of a parsed tokenizer.json, or why this encoder cannot take it. With `file` the vocabulary and
 * merges are there, and `tokenizerJson` has none.
 */
export function buildEncoderTables(
  tokenizerJson: JsonObject,
  file?: ModelBytes,
): EncoderTables | { readonly refusal: string } {
  try {
    return build(tokenizerJson, file)
  } catch (error) {
    if (error instanceof Refusal) return { refusal: error.message }
    throw error
  }
}

function build(tokenizer: JsonObject, file: ModelBytes | undefined): EncoderTables {
  const plan = readTokenizerPlan(tokenizer)
  const value = tokenizer['model']
  if (typeof value !== 'object' || value === null) throw new Refusal('there is no model')
  checkModel(value as JsonObject, plan.isByteLevel)
  // Pieces are cut inside words there, and only a whole word may be a token that no merges make.
  const ignoresMerges = (value as JsonObject)['ignore_merges'] === true
  if (plan.split.kind === 'joins' && ignoresMerges)
    throw new Refusal('the model ignores merges, and its words are cut where nothing joins')
  const fromBytes =
    file !== undefined && plan.isByteLevel ? readModelBytes(value as JsonObject, file) : undefined
  const whole = fromBytes === undefined && file !== undefined ? file.whole()['model'] : value
  const model = fromBytes ?? readModel(whole as JsonObject, plan.isByteLevel)
  const forms = buildCharTable(FORM_RUNS)
  const addedTokens = readAddedTokens(tokenizer['added_tokens'], model, plan, new CharTable(forms))
  const joins = buildJoins(
    plan.split.kind === 'joins' ? joinedTokens(madeTokens(whole as JsonObject), plan.cutsAtMarks) : [],
  )
  const classes = buildCharTable(CLASS_RUNS)
  const numeric = buildCharTable(NUMERIC_RUNS)
  const words = buildCharTable(WORD_RUNS)
  const { memory, sections } = packSections<SectionName>({
    ...model.vocabulary.arrays,
    merges: model.merges.merges,
    mergeSlots: model.merges.slots,
    byteRanks: plan.isByteLevel ? buildByteRanks(model.merges, model.byteIds) : new Int32Array(0),
    byteIds: model.byteIds,
    joinAscii: joins.ascii,
    joinPairs: joins.pairs,
    seamPairs: model.seamPairs,
    classBmp: classes.bmp,
    classBlockOf: classes.blockOf,
    classBlocks: classes.blocks,
    numericBmp: numeric.bmp,
    numericBlockOf: numeric.blockOf,
    numericBlocks: numeric.blocks,
    formBmp: forms.bmp,
    formBlockOf: forms.blockOf,
    formBlocks: forms.blocks,
    wordBmp: words.bmp,
    wordBlockOf: words.blockOf,
    wordBlocks: words.blocks,
  })
  return {
    memory,
    description: { sections, plan, addedTokens, ignoresMerges, otherTokens: model.otherTokens },
  }
}

function* joinedTokens(tokens: Iterable<string>, cutsAtMarks: boolean): Generator<string> {
  for (const token of tokens) {
    if (!cutsAtMarks) yield token
    // Before every mark there is a cut, so what a token has before one is joined to nothing.
    else for (const part of token.split(SPACE_MARK)) yield part === token ? token : SPACE_MARK + part
  }
}

/**
 * The reference counts ids anew when it loads added tokens; where the file says otherwise, engines may see
 * either.
 */
function readAddedTokens(
  value: unknown,
  { idOf, tokenCount }: ModelArrays,
  plan: TokenizerPlan,
  forms: CharTable,
): AddedToken[] {
  const tokens: AddedToken[] = []
  const patterns = new Map<string, number>()
  let nextId = tokenCount
  for (const entry of (Array.isArray(value) ? value : []) as readonly (JsonObject | null)[]) {
    if (typeof entry !== 'object' || entry === null) throw new Refusal('an added token is no object')
    const content = wordOf(entry['content'])
    if (content === '') continue
    const id = idOf(content) ?? nextId++
    if (entry['id'] !== id)
      throw new Refusal(`the id of added token ${content} is ${wordOf(entry['id'])}, not ${id}`)
    const isNormalized = entry['normalized'] === true
    const isSingleWord = entry['single_word'] === true
    const hasNormalizer =
      plan.form !== undefined || plan.marksSpaces === 'normalizer' || plan.normalizerPrefix !== 'none'
    if (isSingleWord && isNormalized && hasNormalizer)
      throw new Refusal(`the added token ${content} is normalized and matches single words only`)
    const pattern = isNormalized ? normalizedPattern(content, plan, forms) : content
    const key = `${isNormalized} ${pattern}`
    if (patterns.has(key)) throw new Refusal(`two added tokens are found by ${pattern}`)
    patterns.set(key, id)
    tokens.push({
      id,
      content,
      pattern,
      isSingleWord,
      stripsLeft: entry['lstrip'] === true,
      stripsRight: entry['rstrip'] === true,
      isNormalized,
    })
  }
  for (const isNormalized of [false, true])
    if (mayOverlap(tokens.filter(token => token.isNormalized === isNormalized)))
      throw new Refusal('an added token takes white space that another begins with')
  return tokens
}

function normalizedPattern(content: string, plan: TokenizerPlan, forms: CharTable): string {
  let pattern = plan.form === undefined ? content : new NormalForm(plan.form, forms).apply(content)
  if (plan.normalizerPrefix === 'always') pattern = SPACE_MARK + pattern
  return plan.marksSpaces === 'normalizer' ? pattern.replaceAll(' ', SPACE_MARK) : pattern
}
