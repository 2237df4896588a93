/**
 * Hostile texts: what tokenizers get wrong, drawn at random from a seed. The same seed gives the same texts
 * on every version of Node, because no list here is taken from the Unicode tables of the platform. All texts
 * are well-formed.
 */

import type { Random } from '@homing/base'

/** Added tokens of the vocabularies in use, and some that none of them has. */
export const LITERAL_TOKENS = [
  ...[
    '<|endoftext|>',
    '<|im_start|>',
    '<|im_end|>',
    '<s>',
    '</s>',
    '<unk>',
    '[INST]',
    '[/INST]',
    '<EOT>',
    '<META>',
  ],
  ...[
    '<META_START>',
    '<META_END>',
    '<SOS>',
    '<|begin_of_text|>',
    '<|eot_id|>',
    '<|start_header_id|>',
    '<|end_header_id|>',
  ],
  ...[
    '<｜begin▁of▁sentence｜>',
    '<｜end▁of▁sentence｜>',
    '<｜User｜>',
    '<｜Assistant｜>',
    '<｜▁pad▁｜>',
    '<think>',
    '</think>',
  ],
  ...[
    '<tool_call>',
    '</tool_call>',
    '<|fim_prefix|>',
    '<|endofprompt|>',
    '<SPECIAL_20>',
    '<pad>',
    '[TOOL_CALLS]',
  ],
  ...[
    '<｜place▁holder▁no▁7｜>',
    '<｜tool▁calls▁begin｜>',
    '<|reserved_special_token_1|>',
    '<|reserved_special_token_10|>',
  ],
]

/** First and last letter of scripts, old and newest; some points between them are not assigned. */
const SCRIPTS: readonly (readonly [number, number])[] = [
  ...ranges(
    '41-5a 61-7a c0-ff 100-24f 250-2af 2b0-2ff 370-3ff 400-52f 531-58f 5d0-5ea 620-64a 671-6d3 700-74f',
  ),
  ...ranges(
    '780-7b1 7c0-7ff 800-85f 860-8ff 900-97f 980-9ff a00-a7f a80-aff b00-b7f b80-bff c00-cff d00-dff e00-e5b',
  ),
  ...ranges(
    'e80-edf f00-fff 1000-109f 10a0-10ff 1100-11ff 1200-139f 13a0-13ff 1401-167f 1780-17ff 1800-18aa',
  ),
  ...ranges(
    '1b00-1b7f 1c80-1c8f 1c90-1cbf 1d00-1dbf 1e00-1eff 1f00-1fff 2c00-2dff 3040-309f 30a0-30ff 3105-312f',
  ),
  ...ranges(
    '3131-318e 3400-4dbf 4e00-9fff a000-a48c a640-a69f a720-a7ff a840-a877 aa00-aadf ab30-abbf ac00-d7a3',
  ),
  ...ranges(
    'd7b0-d7ff f900-faff fb00-fb4f fb50-fdff fe70-feff ff21-ff5a ff66-ffdc 10000-100fa 10280-1031f 10330-103ff',
  ),
  ...ranges(
    '10400-1047f 10500-105ff 10800-10aff 10c00-10cff 10d00-10d8f 10e80-10eff 10f00-10fff 11000-110ff',
  ),
  ...ranges(
    '11180-111df 11200-1124f 11380-113ff 11400-1145f 11580-115ff 11600-1164f 11700-1174f 118a0-118ff',
  ),
  ...ranges(
    '11a00-11abf 11bc0-11bff 11c00-11cff 11d00-11dff 11ee0-11f5f 12000-1254f 13000-1345f 13460-143ff',
  ),
  ...ranges(
    '16100-1613f 16800-16a3f 16a40-16aff 16b00-16b8f 16d40-16d7f 16e40-16eff 16f00-16f9f 17000-18aff',
  ),
  ...ranges(
    '18b00-18cff 18d00-18dff 1aff0-1b2ff 1bc00-1bc9f 1d400-1d7ff 1df00-1df2a 1e000-1e14f 1e290-1e2ff',
  ),
  ...ranges(
    '1e4d0-1e5ff 1e6c0-1e6ff 1e7e0-1e8df 1e900-1e95f 1ee00-1eeff 20000-2a6df 2a700-2ebef 2ebf0-2ee5d 2f800-2fa1f',
  ),
  ...ranges('30000-323af 323b0-33479'),
]
const MARKS = ranges(
  '300-36f 483-489 591-5bd 610-61a 64b-65f 6d6-6ed 730-74a 8ca-902 93a-94f 981-983 e31-e3a e47-e4e f71-f84 135d-135f 1ab0-1ace 1dc0-1dff 20d0-20f0 302a-302f 3099-309a a66f-a67d fb1e-fb1e fe00-fe0f fe20-fe2f 10d24-10d27 1d165-1d172 1e130-1e136 1e944-1e94a e0100-e01ef',
)
/** The digit zero of decimal digits; nine more follow each. */
const ZEROS = points(
  '30 660 6f0 7c0 966 9e6 a66 ae6 b66 be6 c66 ce6 d66 de6 e50 ed0 f20 1040 1090 17e0 1810 1946 19d0 1a80 1b50 1bb0 1c40 a620 a8d0 a900 a9d0 a9f0 aa50 abf0 ff10 104a0 10d30 10d40 11066 110f0 11136 111d0 112f0 11450 114d0 11650 116c0 116da 11730 118e0 11950 11bf0 11c50 11d50 11da0 11de0 11f50 16130 16a60 16ac0 16b50 16d70 1ccf0 1d7ce 1d7d8 1d7f6 1e140 1e2f0 1e4f0 1e5f1 1e950 1fbf0',
)
const OTHER_NUMBERS = ranges(
  'b2-b3 b9-b9 bc-be 9f4-9f9 b72-b77 bf0-bf2 d58-d5e f2a-f33 1369-137c 16ee-16f0 17f0-17f9 2070-2079 2080-2089 2150-2189 2460-249b 24ea-24ff 2776-2793 2cfd-2cfd 3007-3007 3021-3029 3192-3195 3220-3229 3248-324f 3280-3289 a6e6-a6ef a830-a835 10107-10133 10140-10178 1018a-1018b 102e1-102fb 10320-10323 12400-1246e 16e80-16e96 1d2c0-1d2d3 1d360-1d378 1ec71-1ecab 1f100-1f10c',
)
const SYMBOLS = ranges(
  '21-2f 3a-40 5b-60 7b-7e a1-a9 ab-b1 b4-b4 b6-b8 bb-bb bf-bf d7-d7 f7-f7 2c2-2c5 55a-55f 589-58a 5be-5be 60c-60d 61b-61f 66a-66d 964-965 e3f-e3f 2010-2027 2030-205e 20a0-20c1 2100-214f 2190-23ff 2400-2426 2500-27bf 27c0-2bff 2e00-2e5d 3001-3003 3008-3020 3030-3030 30fb-30fb fe10-fe19 fe30-fe6b ff01-ff0f ff1a-ff20 ff5b-ff65 ffe0-ffee 10100-10102 1d000-1d0f5 1f000-1f0ff 1f300-1fbef',
)
const CONTROLS = ranges(
  '0-8 e-1f 7f-84 86-9f ad-ad 600-605 61c-61c 200b-200f 202a-202e 2060-206f feff-feff fff9-fffd e0001-e007f',
)
const NOWHERE = ranges(
  '378-379 38b-38b 530-530 1ad0-1aff 2fe0-2fef a7dd-a7f0 fdd0-fdef fffe-ffff 10200-1027f 1bcb0-1bcff 1f0f6-1f0ff 2fa20-2ffff 33480-334ff 40000-40100 e0200-e0300 1fffe-1ffff 10fffe-10ffff e000-e0ff f0000-f00ff 100000-1000ff',
)
const SPACES = [
  ...[
    ' ',
    ' ',
    ' ',
    ' ',
    '  ',
    '   ',
    '    ',
    '\n',
    '\n',
    '\n\n',
    '\r',
    '\r\n',
    '\r\n',
    '\t',
    '\t\t',
    '\v',
    '\f',
    '\x1c',
    '\x1f',
  ],
  ...[
    '\u0085',
    '\u00a0',
    '\u1680',
    '\u180e',
    '\u2000',
    '\u2003',
    '\u2009',
    '\u200a',
    '\u2028',
    '\u2029',
    '\u202f',
    '\u205f',
    '\u3000',
    '\ufeff',
    '\u200b',
  ],
]
const EMOJI = [
  ...[
    '😀',
    '👍',
    '👍🏽',
    '👩‍👩‍👧‍👦',
    '🏳️‍🌈',
    '🇫🇷',
    '🇩🇪🇯🇵',
    '🇦',
    '1️⃣',
    '#️⃣',
    '☺️',
    '☺',
    '❤️‍🔥',
    '🤷🏿‍♀️',
    '🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}',
  ],
  ...['🫠', '🫨', '🪿', '🩷', '🫪', '🐦‍🔥', '\u{1f3fb}', '\u200d', '\ufe0f', '⚕', '👨🏻‍⚕️', '🧑‍🚀', '🎉🎉🎉'],
]
const CONTRACTIONS = [
  ...[
    "'s",
    "'S",
    "'t",
    "'T",
    "'re",
    "'RE",
    "'Re",
    "'ve",
    "'VE",
    "'m",
    "'M",
    "'ll",
    "'LL",
    "'lL",
    "'d",
    "'D",
    '’s',
    '’T',
  ],
  ...[
    "'ſ",
    "'ſT",
    'ſ',
    '\u212a',
    "'\u212a",
    "'x",
    "''s",
    "' s",
    "'",
    "'r",
    "'l",
    "'v",
    "'ſe",
    "'İ",
    'ı',
    '`s',
    "s'",
    "'sé",
    "'dž",
  ],
]
const PLAIN_WORDS = (
  'the router sends each request to engine that holds its prefix I we you don can won it There HTTP XMLHttpRequest camelCase snake_case ' +
  'SCREAMING_CASE iPhone naïve café Zürich über Straße œuvre ǅungla ŉ ʰ ª º Ⅷ ① ﬁ ﷺ __proto__ constructor toString valueOf hasOwnProperty ' +
  'antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis 12 1234 1234567 3.14159 1,000,000 0xdeadbeef 1e-9 2024-01-15 10:30:00'
).split(' ')
const CODE = [
  ...[
    'def f(x):\n    return x\n',
    'if (a && b) {\n\t\treturn;\n\t}\n',
    '    \n        \n',
    '}\n\n\n  }\n',
    'x = {"a": [1, 2.5e-3, null]}\n',
  ],
  ...[
    '// ---------------------\n',
    '/* ***** */',
    '#include <stdio.h>\r\n',
    '<div class="a">&nbsp;</div>',
    'SELECT * FROM t WHERE a=1;--\n',
  ],
  ...[
    'for(int i=0;i<10;++i)',
    'a->b.c()[0]',
    '\\u00e9\\n\\t',
    '$HOME/.bashrc',
    'https://example.com/a/b?c=d&e=%20#f',
    '```py\n',
    '!==',
    '...',
    '=>',
  ],
  ...[
    'fn main() -> Result<(), Box<dyn Error>> {\n',
    '\tlet mut x: Vec<u8> = vec![];\n',
    '@property\n  async *[Symbol.iterator]() {}',
    '|a|b|\n|-|-|\n',
  ],
]
/** Sequences that a normalization form changes, or reorders, or must not change. */
const NORMALIZED = [
  ...[
    'e\u0301',
    'E\u0300\u0301',
    'a\u0308\u0323',
    'a\u0323\u0308',
    '\u212b',
    '\u2126',
    '\u212a',
    '\u0340',
    '\u0344',
    '\u0374',
    '\u037e',
    '\u0387',
  ],
  ...[
    '\u0958',
    '\u09dc',
    '\u0b5c',
    '\u0f43',
    '\u0f73',
    '\u0f81',
    '\u1100\u1161',
    '\u1100\u1161\u11a8',
    '가\u11a8',
    '\u1112\u1175',
    '\u11a8',
    '\u1161',
  ],
  ...[
    '\uf900',
    '\uf91c',
    '\ufa30',
    '\ufb1d',
    '\ufb2a',
    '\u{2f800}',
    '\u{2f9ff}',
    '\u{1d15e}',
    '\u{1d1bc}',
    '\u{1109a}',
    '\u{11131}\u{11127}',
    '\u{110a5}\u{110ba}',
  ],
  ...[
    'か\u3099',
    'は\u309a',
    '\u0915\u093c',
    '\u05d0\u05b7',
    '\u0627\u0653',
    '\u1e9b\u0323',
    '\u2adc',
    '\u2329',
    '\ufb01',
    'ｱﾞ',
    '㍿',
    '½',
    '\u0385',
  ],
  ...[
    '\u{105d2}\u0307',
    '\u{113c2}\u{113b8}',
    '\u{16121}\u{1611e}',
    '\u{16d68}\u{16d67}',
    '\u{11938}',
    '\u{11935}\u{11930}',
    '\u0b47\u0b3e',
    '\u0cc6\u0cd5',
  ],
]
const SENTENCEPIECE = [
  '▁',
  '▁▁',
  '▁a',
  ' ▁',
  '▁ ',
  '<0x41>',
  '<0x0A>',
  '<0xFF>',
  'Ġ',
  'Ċ',
  'Ġthe',
  'Ã©',
  'ĉ',
  '\u0000',
  '<0x',
  '⁇',
  '�',
]
/** An encoder may refuse a character with thousands of marks. */
const MARKS_MAX = 1000
const MARK = '\u0301'
const RUNS = [
  'a',
  ' ',
  '\n',
  '\t',
  '=',
  '-',
  '!',
  '0',
  '9',
  '/',
  '─',
  '的',
  '😀',
  MARK,
  '\r\n',
  ' \n',
  '\n ',
  'ab',
  '한',
  'ก',
  'A',
  'aB',
  '\u3000',
  '１',
  '#',
  '\u00a0',
]
const ASCII = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i))

type Kind = (random: Random) => string

const KINDS: readonly Kind[] = [
  random => repeat(random, 12, inOneOf(random, SCRIPTS)),
  random => repeat(random, 6, () => from(random, SCRIPTS) + repeat(random, 4, () => from(random, MARKS))),
  random => repeat(random, 40, () => from(random, MARKS)),
  random => repeat(random, 4, () => pick(random, EMOJI)),
  random => repeat(random, 8, () => pick(random, SPACES)),
  random => repeat(random, 8, () => pick(random, SPACES)),
  random => repeat(random, 5, () => pick(random, SPACES)) + pick(random, PLAIN_WORDS),
  random => digits(random),
  random => repeat(random, 7, () => String.fromCodePoint(pick(random, ZEROS) + random.below(10))),
  random => repeat(random, 4, () => from(random, OTHER_NUMBERS)),
  random => repeat(random, 5, () => from(random, SYMBOLS)),
  random => repeat(random, 3, () => from(random, CONTROLS)),
  random => repeat(random, 3, () => from(random, NOWHERE)),
  random => repeat(random, 6, () => pick(random, NORMALIZED)),
  random => repeat(random, 3, () => pick(random, SENTENCEPIECE)),
  random => repeat(random, 4, () => pick(random, CODE)),
  random => repeat(random, 3, () => pick(random, PLAIN_WORDS) + pick(random, CONTRACTIONS)),
  random => repeat(random, 5, () => pick(random, CONTRACTIONS)),
  random => repeat(random, 8, () => ` ${pick(random, PLAIN_WORDS)}`),
  random => repeat(random, 6, () => pick(random, PLAIN_WORDS)),
  random => repeat(random, 30, () => pick(random, ASCII)),
  random => pick(random, RUNS).repeat(1 + random.below(random.below(8) === 0 ? 300 : 20)),
  random => pick(random, LITERAL_TOKENS),
  random => pieceOf(random, pick(random, LITERAL_TOKENS)),
  random => repeat(random, 4, () => anyPoint(random)),
  random => fewLetters(random),
  random => fewLetters(random),
]

/** One text: up to a dozen pieces of the kinds above, glued in any order. */
export function hostileText(random: Random): string {
  let text = ''
  for (let count = 1 + random.below(random.below(4) === 0 ? 12 : 4); count > 0; count--) {
    text += pick(random, KINDS)(random)
    if (random.below(4) === 0) text += pick(random, SPACES)
  }
  return text
}

/**
 * One of up to some 100,000 characters: hundreds of hostile texts in a row, and runs that no buffer foresees.
 */
export function longHostileText(random: Random): string {
  let text = ''
  for (let count = 20 + random.below(300); count > 0; count--) {
    text += hostileText(random)
    if (random.below(20) === 0) {
      const run = pick(random, RUNS)
      text += run.repeat(random.below(run === MARK ? MARKS_MAX : 10_000))
    }
    if (random.below(20) === 0)
      text += repeat(random, 3000, () => pick(random, pick(random, [ASCII, SPACES, NORMALIZED])))
  }
  return text
}

/** A long text over a handful of letters: what a scanner's states meet in every order. */
function fewLetters(random: Random): string {
  const letters = Array.from({ length: 2 + random.below(5) }, () => {
    const kind = random.below(10)
    if (kind < 3) return pick(random, SPACES)
    if (kind < 4) return from(random, SCRIPTS)
    if (kind < 5) return from(random, MARKS)
    if (kind < 6) return String.fromCodePoint(pick(random, ZEROS) + random.below(10))
    if (kind < 7) return pick(random, NORMALIZED)
    return pick(random, [
      "'",
      's',
      'S',
      'l',
      't',
      'a',
      'B',
      'é',
      '1',
      '2',
      '.',
      '!',
      '/',
      '\\',
      '_',
      '中',
      'ア',
      '・',
      'Ж',
      'ـ',
      '"',
      '$',
      '€',
    ])
  })
  return repeat(random, 24, () => pick(random, letters))
}

function digits(random: Random): string {
  return repeat(random, 30, () => String(random.below(10)))
}

/** A token without its beginning or end, or with something inside. */
function pieceOf(random: Random, token: string): string {
  const letters = Array.from(token)
  const at = random.below(letters.length)
  switch (random.below(4)) {
    case 0:
      return letters.slice(at).join('')
    case 1:
      return letters.slice(0, at).join('')
    case 2:
      return letters.toSpliced(at, 0, pick(random, SPACES)).join('')
    default:
      return letters.slice(0, at).join('') + token
  }
}

function anyPoint(random: Random): string {
  const point = random.below(0x110000 - 0x800)
  return String.fromCodePoint(point < 0xd800 ? point : point + 0x800)
}

function inOneOf(random: Random, of: readonly (readonly [number, number])[]): () => string {
  const range = [pick(random, of)]
  return () => from(random, range)
}

function from(random: Random, of: readonly (readonly [number, number])[]): string {
  const [first, last] = pick(random, of)
  return String.fromCodePoint(first + random.below(last - first + 1))
}

/** One to `max` of them. */
function repeat(random: Random, max: number, make: () => string): string {
  let text = ''
  for (let count = 1 + random.below(max); count > 0; count--) text += make()
  return text
}

function pick<T>(random: Random, of: readonly T[]): T {
  return of[random.below(of.length)]!
}

/** 'first-last …' in hexadecimal. */
function ranges(text: string): readonly (readonly [number, number])[] {
  return text.split(' ').map(range => {
    const [first, last] = range.split('-')
    return [Number.parseInt(first!, 16), Number.parseInt(last!, 16)]
  })
}

function points(text: string): readonly number[] {
  return text.split(' ').map(point => Number.parseInt(point, 16))
}
