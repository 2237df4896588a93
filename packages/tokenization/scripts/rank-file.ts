/**
 * Rank files (tiktoken's form) to the vocabulary and merges of a byte-level BPE model in Hugging Face's form.
 *
 * A rank file lists tokens as bytes, each with its rank; merging joins the neighbours that make the token of
 * the lowest rank. A list of merges names pairs instead. So for each token, the pairs of lower rank that make
 * it are searched:
 *
 *   mergesByRank   the one pair that the ranks below the token lead to, as Qwen's and GPT-4's files were made
 *   allMerges      every pair of tokens that makes it, in the order of their ranks, as Llama 3's and tekken's
 *                  were made
 *
 * Tokens are strings of one character per byte ("latin1"), because those can be cut and looked up.
 */

/** Token → rank; the token has one character per byte. */
export type Ranks = ReadonlyMap<string, number>
/** The two halves, one character per byte. */
export type Merge = readonly [string, string]

/** Reads lines of base64, a space and the rank. Throws on any other line. */
export function parseRankFile(text: string): Ranks {
  const ranks = new Map<string, number>()
  for (const [i, line] of text.split('\n').entries()) {
    if (line === '') continue
    const found = /^([A-Za-z0-9+/]*={0,2}) (\d+)$/.exec(line)
    if (found === null) throw new Error(`cannot read the rank file: line ${i + 1} is no token with a rank`)
    ranks.set(Buffer.from(found[1]!, 'base64').toString('latin1'), Number(found[2]))
  }
  return ranks
}

/**
 * One merge for each token that its bytes lead to, in the order of ranks; a token that nothing leads to has
 * none.
 */
export function mergesByRank(ranks: Ranks): Merge[] {
  const merges: Merge[] = []
  for (const [token, rank] of inOrder(ranks)) {
    if (token.length === 1) continue
    const parts = partsBelow(ranks, token, rank)
    if (parts.length === 2) merges.push(parts as unknown as Merge)
  }
  return merges
}

/** Every pair of tokens that makes a token, in the order of the token's rank, then of the halves' ranks. */
export function allMerges(ranks: Ranks): Merge[] {
  const merges: Merge[] = []
  for (const [token] of inOrder(ranks)) {
    const pairs: Merge[] = []
    for (let cut = 1; cut < token.length; cut++) {
      const [left, right] = [token.slice(0, cut), token.slice(cut)]
      if (ranks.has(left) && ranks.has(right)) pairs.push([left, right])
    }
    pairs.sort((a, b) => ranks.get(a[0])! - ranks.get(b[0])! || ranks.get(a[1])! - ranks.get(b[1])!)
    merges.push(...pairs)
  }
  return merges
}

/** The visible letter that stands for each byte in a byte-level vocabulary, as in GPT-2. */
export function byteLetters(): readonly string[] {
  let next = 256
  return Array.from({ length: 256 }, (_, byte) => {
    const isVisible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae
    return String.fromCharCode(isVisible ? byte : next++)
  })
}

function inOrder(ranks: Ranks): readonly (readonly [string, number])[] {
  return [...ranks].sort((a, b) => a[1] - b[1])
}

/** What byte-pair encoding makes of the token when only tokens of lower rank may be made. */
function partsBelow(ranks: Ranks, token: string, rank: number): readonly string[] {
  const parts = token.split('')
  for (;;) {
    let best = rank
    let at = -1
    for (let i = 1; i < parts.length; i++) {
      const made = ranks.get(parts[i - 1]! + parts[i]!)
      if (made !== undefined && made < best) [best, at] = [made, i]
    }
    if (at < 0) return parts
    parts.splice(at - 1, 2, parts[at - 1]! + parts[at]!)
  }
}
