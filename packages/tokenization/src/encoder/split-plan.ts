/**
 * Split plan: which scanner a pre-tokenizer needs, recognised by the exact text of its regular expressions.
 *
 * A pattern that is not in the table is refused: a scanner that is right for almost every text gives wrong
 * prefixes for the others, and no error reports them.
 */

import type { CasedRules } from './scan-cased.ts'
import { LETTER, MARK, type WordRules } from './scan-words.ts'

/** How text between added tokens falls into pieces that are merged one by one. */
export type SplitPlan =
  | { readonly kind: 'gpt2' }
  | { readonly kind: 'cl100k'; readonly rules: WordRules }
  | { readonly kind: 'cased'; readonly rules: CasedRules }
  | { readonly kind: 'deepseek'; readonly digitsMax: number }
  /** Splits between two units that no token of the vocabulary has side by side. */
  | { readonly kind: 'joins' }

/** Digits that are split off before the plan's own pattern is applied to the text between. */
export type DigitsFirst = 'none' | 'one by one' | 'runs'

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
const OTHER_CONTRACTIONS = "'(?i:[sdmt]|ll|ve|re)"
const ASCII_CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'
const U = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]'
const W = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'
const LEAD = '[^\\r\\n\\p{L}\\p{N}]?'

const PLANS: ReadonlyMap<string, SplitPlan> = new Map([...cl100kPlans(), ...casedPlans(), gpt2Plan()])

/** DeepSeek V3's three splits, in order. */
const DEEPSEEK_HAN = '[一-龥\u3040-\u309f\u30a0-\u30ff]+'
const DEEPSEEK_MAIN =
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|' +
  SPACES

/** The plan of one regular expression, or undefined. */
export function planOfRegex(regex: string): SplitPlan | undefined {
  return PLANS.get(normalizedRegex(regex))
}

/** The plan of several splits in a row, or undefined. */
export function planOfRegexes(regexes: readonly string[]): SplitPlan | undefined {
  if (regexes.length === 1) return planOfRegex(regexes[0]!)
  const [digits, han, main, ...others] = regexes.map(normalizedRegex)
  if (others.length > 0 || han !== DEEPSEEK_HAN || main !== DEEPSEEK_MAIN) return undefined
  if (digits === '\\p{N}{1,3}') return { kind: 'deepseek', digitsMax: 3 }
  return digits === '\\p{N}' ? { kind: 'deepseek', digitsMax: 1 } : undefined
}

/** Line breaks may stand in a pattern as they are or as escapes. */
function normalizedRegex(regex: string): string {
  return regex.replaceAll('\r', '\\r').replaceAll('\n', '\\n')
}

function gpt2Plan(): [string, SplitPlan] {
  return [
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    { kind: 'gpt2' },
  ]
}

function* cl100kPlans(): Generator<[string, SplitPlan]> {
  const contractions = [
    [CONTRACTIONS, 'any-case'],
    [OTHER_CONTRACTIONS, 'any-case'],
    [ASCII_CONTRACTIONS, 'ascii-case'],
    ["'s|'t|'re|'ve|'m|'ll|'d", 'exact'],
  ] as const
  const digits = [
    ['\\p{N}', 1],
    ['\\p{N}{1,3}', 3],
  ] as const
  for (const [head, how] of contractions) {
    for (const [number, digitsMax] of digits) {
      const rules = { contractions: how, digitsMax, slashAfterPunctuation: false }
      const signs = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*'
      const plain: SplitPlan = { kind: 'cl100k', rules: { ...rules, letters: LETTER } }
      yield [`${head}|${LEAD}\\p{L}+|${number}|${signs}|${SPACES}`, plain]
      yield [
        `${head}|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|${number}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+`,
        plain,
      ]
      yield [
        `${head}|${LEAD}[\\p{L}\\p{M}]+|${number}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`,
        { kind: 'cl100k', rules: { ...rules, letters: LETTER | MARK } },
      ]
    }
  }
}

function* casedPlans(): Generator<[string, SplitPlan]> {
  const digits = [
    ['\\p{N}', 1],
    ['\\p{N}{1,3}', 3],
  ] as const
  const tails = [
    ['', undefined],
    [`${CONTRACTIONS}?`, 'any-case'],
    [`${ASCII_CONTRACTIONS}?`, 'ascii-case'],
  ] as const
  for (const [tail, contractions] of tails) {
    for (const [number, digitsMax] of digits) {
      yield [
        `${LEAD}${U}*${W}+${tail}|${LEAD}${U}+${W}*${tail}|${number}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`,
        { kind: 'cased', rules: { contractions, digitsMax } },
      ]
    }
  }
}
