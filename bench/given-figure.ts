/** Figures on the command line of a bench. */

/**
 * `text` as a number from `min` on. RangeError with a sentence where it is none: the bench would run nothing,
 * and write that down.
 */
export function givenFigure(option: string, text: string, min = 0): number {
  const figure = Number(text)
  if (text.trim() === '' || !(figure >= min && figure < Infinity))
    throw new RangeError(`cannot use --${option} ${JSON.stringify(text)}: use a number from ${min} on`)
  return figure
}

/** The same for what is counted. */
export function givenCount(option: string, text: string, min = 1): number {
  const count = givenFigure(option, text, min)
  if (!Number.isSafeInteger(count))
    throw new RangeError(`cannot use --${option} ${JSON.stringify(text)}: use a whole number from ${min} on`)
  return count
}
