/** Texts of a given number of tokens, out of words that nearly every tokenizer knows as one token each. */

import { type Random, seededRandom } from '@homing/base'

/** One token each, with the space before them. */
export const WORDS = (
  'the and that about answer return time with you city engine for long number two tokens count first function help ' +
  'know name not old one price question response second there jump user again are blocks can capital come compute ' +
  'door evening full him house live longest man million more numbers people prefix push queue quick router read'
).split(' ')

/** `count` words with a space between them. */
export function wordsText(random: Random, count: number): string {
  let text = ''
  for (let i = 0; i < count; i++) text += `${i === 0 ? '' : ' '}${WORDS[random.below(WORDS.length)]!}`
  return text
}

/** The first `count` words of the text that `number` stands for: equal numbers begin with equal words. */
export function numberedText(number: number, count: number): string {
  const high = Math.floor(number / 2 ** 32)
  return wordsText(seededRandom((number ^ Math.imul(high + 1, 0x9e3779b1)) >>> 0), count)
}
