/**
 * The one door for JSON of others: of clients, engines, replicas, brokers and files. JSON.parse reads any
 * depth, but what is read is walked over by functions that call themselves (JSON.stringify, a copy to another
 * thread), and these end with a RangeError; and each level takes fifty times its bytes.
 *
 * The size is bounded by the caller, who has the bytes. Cost of the check: about 1 ns per character.
 */

/** Deeper texts are refused: no request needs it, and engines' parsers give up at about 1,000. */
export const JSON_DEPTH_MAX = 256
const [QUOTE, OPEN_BRACKET, BACKSLASH, CLOSE_BRACKET, OPEN_BRACE, CLOSE_BRACE] = [
  0x22, 0x5b, 0x5c, 0x5d, 0x7b, 0x7d,
]

type Reviver = (name: string, value: unknown, context?: { readonly source?: string }) => unknown

/** As JSON.parse. Throws SyntaxError, for more than JSON_DEPTH_MAX levels, too. */
export function parseJson(text: string, reviver?: Reviver): unknown {
  // A text of so few characters has no room for more levels that are closed.
  if (text.length > 2 * JSON_DEPTH_MAX) checkDepth(text)
  return JSON.parse(text, reviver)
}

/** Of a text that is not JSON it may say anything: that is found out afterwards. */
function checkDepth(text: string): void {
  let depth = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) at = endOfString(text, at + 1)
    else if (code === OPEN_BRACKET || code === OPEN_BRACE) {
      if (++depth > JSON_DEPTH_MAX)
        throw new SyntaxError(`more than ${JSON_DEPTH_MAX} levels, at position ${at}`)
    } else if (code === CLOSE_BRACKET || code === CLOSE_BRACE) depth--
  }
}

/** Where its closing quote is; behind the text: it has none. */
function endOfString(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) return at
    if (code === BACKSLASH) at++
  }
  return text.length
}
