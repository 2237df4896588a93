/**
 * The patterns by which model families cut text into words before merging, as their tokenizer.json files have
 * them.
 *
 * Sources: GPT-2, cl100k_base and o200k_base of tiktoken in the form that Hugging Face's conversions use;
 * Llama 3; Qwen 2; DeepSeek V3 (three patterns in turn); tekken of Mistral.
 */

const UPPER = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]'
const LOWER = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'
const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'

export type PatternName = 'gpt2' | 'llama3' | 'qwen' | 'o200k' | 'deepseek' | 'tekken'

const PATTERNS: Readonly<Record<Exclude<PatternName, 'gpt2'>, readonly string[]>> = {
  llama3: [
    `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`,
  ],
  qwen: [`${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`],
  o200k: [
    [
      `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${CONTRACTIONS}?`,
      `[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${CONTRACTIONS}?`,
      `\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`,
    ].join('|'),
  ],
  deepseek: [
    '\\p{N}{1,3}',
    '[一-龥\u3040-ゟ゠-ヿ]+',
    `[!"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_\`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+`,
  ],
  tekken: [
    [
      `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+`,
      `[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*`,
      `\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`,
    ].join('|'),
  ],
}

/** The families. */
export const PATTERN_NAMES: readonly PatternName[] = ['gpt2', ...(Object.keys(PATTERNS) as PatternName[])]

/**
 * The `pre_tokenizer` of a tokenizer.json. `matches`: written as what matches is kept, which is the same
 * split.
 */
export function preTokenizer(name: PatternName, form: 'isolated' | 'matches' = 'isolated'): object {
  const byteLevel = {
    type: 'ByteLevel',
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: name === 'gpt2',
  }
  if (name === 'gpt2') return byteLevel
  const how =
    form === 'isolated' ? { behavior: 'Isolated', invert: false } : { behavior: 'Removed', invert: true }
  const splits = PATTERNS[name].map(Regex => ({ type: 'Split', pattern: { Regex }, ...how }))
  return { type: 'Sequence', pretokenizers: [...splits, byteLevel] }
}
