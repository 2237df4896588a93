/**
 * Vocabularies in Hugging Face's form: the tokenizer.json of a byte-level vocabulary or of a SentencePiece
 * model, and the tokenizer_config.json that stands beside it.
 */

import { byteLetters, type Merge, type Ranks } from './rank-file.ts'
import { CONTROL, mergesOfPieces, readSentencePieceModel, UNKNOWN } from './sentencepiece-model.ts'

/** One of `added_tokens`. */
export interface AddedToken {
  readonly id: number
  readonly content: string
  readonly isSpecial?: boolean
}

export function numbered(contents: readonly string[], firstId: number): readonly AddedToken[] {
  return contents.map((content, i) => ({ id: firstId + i, content }))
}

interface TokenizerParts {
  readonly vocabulary: Readonly<Record<string, number>>
  readonly merges: readonly Merge[]
  readonly ignoreMerges?: boolean
  readonly added: readonly AddedToken[]
  readonly normalizer?: object
  readonly preTokenizer: object
}

/** The vocabulary and the merges as bytes. */
interface ByteLevelParts extends Omit<TokenizerParts, 'vocabulary'> {
  readonly ranks: Ranks
  /** Tokens of the vocabulary with ids before that of rank 0; none when left out. */
  readonly first?: readonly string[]
}

export function byteLevelTokenizer({ ranks, first = [], merges, ...parts }: ByteLevelParts): object {
  const letters = byteLetters()
  const shown = (token: string): string => {
    let text = ''
    for (let i = 0; i < token.length; i++) text += letters[token.charCodeAt(i)]!
    return text
  }
  return tokenizerFile({
    ...parts,
    vocabulary: Object.fromEntries([
      ...first.map((token, id) => [token, id] as const),
      ...[...ranks].map(([token, rank]) => [shown(token), first.length + rank] as const),
    ]),
    merges: merges.map(([left, right]) => [shown(left), shown(right)]),
  })
}

export function tokenizerFile(parts: TokenizerParts): object {
  const byteLevel = { type: 'ByteLevel', add_prefix_space: true, trim_offsets: false, use_regex: true }
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: parts.added.map(addedToken),
    normalizer: parts.normalizer ?? null,
    pre_tokenizer: parts.preTokenizer,
    post_processor: byteLevel,
    decoder: byteLevel,
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: parts.ignoreMerges ?? false,
      vocab: parts.vocabulary,
      merges: parts.merges,
    },
  }
}

/** A SentencePiece model; its normalizer or pre-tokenizer is the caller's. */
export function sentencePieceTokenizer(model: Buffer): object {
  const pieces = readSentencePieceModel(model)
  const special = pieces.flatMap(({ text, type }, id) =>
    type === CONTROL || type === UNKNOWN ? [{ id, content: text }] : [],
  )
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: special.map(addedToken),
    normalizer: null,
    pre_tokenizer: null,
    post_processor: withFirst('<s>', 1),
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: '<unk>',
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
      vocab: Object.fromEntries(pieces.map(({ text }, id) => [text, id])),
      merges: mergesOfPieces(pieces),
    },
  }
}

function addedToken({ id, content, isSpecial = true }: AddedToken): object {
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false }
  return { id, content, ...flags, special: isSpecial }
}

/** A post-processor that puts one token in front. */
export function withFirst(token: string, id: number): object {
  const first = { SpecialToken: { id: token, type_id: 0 } }
  return {
    type: 'TemplateProcessing',
    single: [first, { Sequence: { id: 'A', type_id: 0 } }],
    pair: [first, { Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 0 } }],
    special_tokens: { [token]: { id: token, ids: [id], tokens: [token] } },
  }
}

/** What the engine's loader wants beside tokenizer.json. */
export function configOf(tokenizer: string): object {
  const { added_tokens, post_processor } = JSON.parse(tokenizer) as {
    added_tokens: readonly { readonly id: number; readonly content: string }[]
    post_processor: { readonly special_tokens?: object } | null
  }
  const [bos] = Object.keys(post_processor?.special_tokens ?? {})
  const eos = ['<|im_end|>', '<|eot_id|>', '<|endoftext|>', '</s>'].find(known =>
    added_tokens.some(({ content }) => content === known),
  )
  return {
    added_tokens_decoder: Object.fromEntries(added_tokens.map(({ id, ...rest }) => [id, rest])),
    bos_token: bos ?? null,
    clean_up_tokenization_spaces: false,
    eos_token: eos ?? null,
    model_max_length: 131_072,
    tokenizer_class: 'PreTrainedTokenizerFast',
  }
}
