/**
 * Texts of four kinds for the bench, from what lies here: nothing is downloaded and nothing is copied into
 * the repository.
 *
 *   english   the prose of this repository's pages, and of the comments in @types/node
 *   code      the TypeScript of this repository
 *   cjk       names of regions, languages, scripts and currencies in Chinese, Japanese and Korean, as the
 *             platform knows them, in sentences drawn at random; and three pages of Biome in these languages
 *   mixed     pieces of all three, of names in eight other scripts, emoji, and one hostile text in twenty
 *
 * Each kind is cut into paragraphs and shuffled from a seed; a first half fills tables, the second is
 * measured, so that what is measured is other text of the same kind.
 */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Random, seededRandom } from '@homing/base'
import { hostileText } from '../../packages/tokenization/test/reference/texts.ts'

export type Kind = 'english' | 'code' | 'mixed' | 'cjk'
export const KINDS: readonly Kind[] = ['english', 'code', 'mixed', 'cjk']

export interface Corpus {
  /** Fills tables. */
  readonly other: string
  /** Is measured. */
  readonly measured: string
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const SKIPPED = new Set(['node_modules', 'dist', 'fixtures', '.tap'])
const GENERATED_CHARS = 1_200_000
const CJK_LOCALES = ['zh-Hans', 'zh-Hant', 'ja', 'ko']
const OTHER_LOCALES = ['ru', 'ar', 'th', 'hi', 'el', 'he', 'vi', 'de']
/** Words that hold sentences together, by locale; and what ends a clause. */
const PARTICLES: Readonly<Record<string, string>> = {
  'zh-Hans': '的 是 在 了 和 有 我们 这个 可以 因为 所以 没有 什么 如果 一个 问题',
  'zh-Hant': '的 是 在 了 和 有 我們 這個 可以 因為 所以 沒有 什麼 如果 一個 問題',
  ja: 'は が を に の と です ます から まで という こと ている ない これ それ',
  ko: '은 는 이 가 을 를 에서 그리고 하지만 있습니다 없습니다 그것은 우리는 합니다 때문에 입니다',
}
const CLAUSE_ENDS = ['，', '。', '、', '；', '？', '！', '：', ', ', '. ', '\n']

/** The two halves of this kind, equal for equal checkouts and versions of Node. */
export function corpusOf(kind: Kind): Corpus {
  const random = seededRandom(KINDS.indexOf(kind) + 1)
  const paragraphs = shuffled(random, paragraphsOf(kind, random))
  const half = paragraphs.length >> 1
  return { other: paragraphs.slice(0, half).join('\n\n'), measured: paragraphs.slice(half).join('\n\n') }
}

function paragraphsOf(kind: Kind, random: Random): readonly string[] {
  switch (kind) {
    case 'english':
      return english()
    case 'code':
      return code()
    case 'cjk':
      return [...cjk(random), ...pages()]
    case 'mixed':
      return mixed(random)
  }
}

function english(): readonly string[] {
  const prose = filesUnder('docs', '.md').flatMap(text =>
    text
      .replaceAll(/^```.*?^```/gms, '')
      .split(/\n\s*\n/)
      .filter(paragraph => !/^[|#]/.test(paragraph)),
  )
  const types = fileURLToPath(new URL('.', import.meta.resolve('@types/node/package.json')))
  const comments = readdirSync(types)
    .filter(name => name.endsWith('.d.ts'))
    .sort()
    .flatMap(name =>
      [...readFileSync(join(types, name), 'utf8').matchAll(/\/\*\*\n(.*?)\n\s*\*\//gs)].map(([, comment]) =>
        comment!
          .replaceAll(/^\s*\* ?/gm, '')
          .replaceAll(/^```.*?^```/gms, '')
          .replaceAll(/^@.*\n?/gm, '')
          .trim(),
      ),
    )
  // Declarations that are written several times have the same comment each time.
  return [...new Set([...prose, ...comments])].filter(paragraph => paragraph.length > 80)
}

function code(): readonly string[] {
  return ['packages', 'actors', 'bench', 'test']
    .flatMap(folder => filesUnder(folder, '.ts'))
    .flatMap(text =>
      text.split(/\n(?=(?:export |async )?(?:function|class|interface|const [A-Z]|t\.test)\b)/),
    )
    .filter(part => part.length > 80)
}

function cjk(random: Random): readonly string[] {
  const paragraphs: string[] = []
  const vocabularies = CJK_LOCALES.map(locale => ({
    names: namesIn(locale),
    particles: PARTICLES[locale]!.split(' '),
  }))
  for (let chars = 0; chars < GENERATED_CHARS; ) {
    const { names, particles } = pick(random, vocabularies)
    let text = ''
    for (let clauses = 5 + random.below(20); clauses > 0; clauses--) {
      for (let words = 2 + random.below(8); words > 0; words--) {
        text += random.below(3) === 0 ? pick(random, names) : pick(random, particles)
      }
      if (random.below(12) === 0) text += String(random.below(3000))
      text += pick(random, CLAUSE_ENDS)
    }
    paragraphs.push(text)
    chars += text.length
  }
  return paragraphs
}

function pages(): readonly string[] {
  const folder = fileURLToPath(new URL('.', import.meta.resolve('@biomejs/biome/package.json')))
  return ['zh-CN', 'ja', 'kr'].flatMap(language =>
    readFileSync(join(folder, `README.${language}.md`), 'utf8').split(/\n\s*\n/),
  )
}

function mixed(random: Random): readonly string[] {
  const sources = [english(), code(), cjk(random)]
  const names = OTHER_LOCALES.map(namesIn)
  const paragraphs: string[] = []
  for (let chars = 0; chars < GENERATED_CHARS; ) {
    const text = mixedParagraph(random, sources, names)
    paragraphs.push(text)
    chars += text.length
  }
  return paragraphs
}

function mixedParagraph(
  random: Random,
  sources: readonly (readonly string[])[],
  names: readonly (readonly string[])[],
): string {
  const kind = random.below(20)
  if (kind === 0) return hostileText(random)
  if (kind > 6) return pick(random, pick(random, sources)).slice(0, 1500)
  const words = pick(random, names)
  const text = Array.from({ length: 10 + random.below(60) }, () => pick(random, words)).join(' ')
  return random.below(3) === 0
    ? `${text} ${pick(random, ['😀', '👍🏽', '🎉', '🇫🇷', '👩‍💻', '→', '…'])}`
    : text
}

/** What the platform calls regions, languages, scripts and currencies in this language. */
function namesIn(locale: string): readonly string[] {
  const letters = Array.from('ABCDEFGHIJKLMNOPQRSTUVWXYZ')
  const pairs = letters.flatMap(a => letters.map(b => a + b))
  const codes = {
    region: pairs,
    language: pairs.map(pair => pair.toLowerCase()),
    currency: Intl.supportedValuesOf('currency'),
    script: ['Latn', 'Cyrl', 'Arab', 'Hans', 'Hant', 'Jpan', 'Kore', 'Deva', 'Thai', 'Grek', 'Hebr', 'Armn'],
  } as const
  const names = Object.entries(codes).flatMap(([type, list]) => {
    const display = new Intl.DisplayNames(locale, {
      type: type as Intl.DisplayNamesType,
      fallback: 'none',
    })
    return list.map(name => display.of(name)).filter(name => name !== undefined)
  })
  return [...new Set(names)]
}

function filesUnder(folder: string, end: string): readonly string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap(entry => {
      const path = `${folder}/${entry.name}`
      if (entry.isDirectory()) return SKIPPED.has(entry.name) ? [] : filesUnder(path, end)
      return entry.name.endsWith(end) ? [readFileSync(join(ROOT, path), 'utf8')] : []
    })
}

function shuffled(random: Random, items: readonly string[]): readonly string[] {
  const list = [...items]
  for (let i = list.length - 1; i > 0; i--) {
    const j = random.below(i + 1)
    ;[list[i], list[j]] = [list[j]!, list[i]!]
  }
  return list
}

function pick<T>(random: Random, of: readonly T[]): T {
  return of[random.below(of.length)]!
}
