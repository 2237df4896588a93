/**
 * Shown text: what a message repeats of a text that came from outside: a beginning, without characters that
 * steer a terminal.
 *
 * A client may choose a model name of a megabyte, a path of line breaks, or a host that changes the direction
 * of writing. An error repeats the name so that its reader finds it, and the beginning is enough for that.
 */

/** Characters of a foreign text that a message repeats. */
export const SHOWN_CHARACTERS_MAX = 100

/** Control and format characters, lone surrogates, and separators of lines. */
const UNSHOWN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu
const SHOWN = /^[^\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]*$/u

/** The beginning of `text`; '…' stands for the rest, U+FFFD for each character that is not shown. */
export function shownText(text: string, charactersMax = SHOWN_CHARACTERS_MAX): string {
  const shown = text.length > charactersMax ? `${text.slice(0, charactersMax)}…` : text
  return shown.replace(UNSHOWN, '\ufffd')
}

/** Whether all of it may be shown as it is: true of every name that people chose. */
export function isShown(text: string): boolean {
  return SHOWN.test(text)
}

/**
 * A whole message within `charactersMax`. The middle is left out: a message begins with what cannot be done,
 * and ends with what would be right.
 */
export function boundedMessage(message: string, charactersMax: number): string {
  if (message.length <= charactersMax) return message
  const tail = Math.floor(charactersMax / 3)
  const head = charactersMax - tail - GAP.length
  return `${message.slice(0, head)}${GAP}${message.slice(-tail)}`.toWellFormed()
}

const GAP = ' … '
