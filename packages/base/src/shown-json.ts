/**
 * Shown JSON: JSON text that may be looked at in a terminal. Characters that steer one, or turn the direction
 * of writing, are written as \u escapes, which every reader of JSON undoes: a client may choose them for its
 * model, its id or its tenant.
 *
 * Cost: one pass that finds nothing in a text of plain ASCII.
 */

/** JSON.stringify escapes those below a space itself, and lone surrogates. */
const NOT_PLAIN = /[\x7f-\uffff]/
const UNSHOWN = /[\x7f-\x9f\p{Cf}\p{Zl}\p{Zp}]/gu

/** `json`: a JSON text; it means the same afterwards. */
export function shownJson(json: string): string {
  return NOT_PLAIN.test(json) ? json.replace(UNSHOWN, escaped) : json
}

/** The characters are in texts only: outside of these JSON has none of them. */
function escaped(character: string): string {
  let text = ''
  for (let at = 0; at < character.length; at++)
    text += `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`
  return text
}
