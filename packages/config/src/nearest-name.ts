/**
 * The name that the user most likely meant: the nearest one by edit distance, if any is near.
 *
 * Cost   O(names × length²), only for names that are already known to be wrong.
 */

/** The nearest of `names` within a third of the letters (at least 2); undefined when none is. */
export function nearestName(wrong: string, names: Iterable<string>): string | undefined {
  let nearest: string | undefined
  let distance = Math.max(2, Math.floor(wrong.length / 3)) + 1
  for (const name of names) {
    const edits = editDistance(wrong, name)
    if (edits < distance) {
      nearest = name
      distance = edits
    }
  }
  return nearest
}

/** Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1]
      let edits = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (isSame ? 0 : 1))
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (isSwap) edits = Math.min(edits, beforeLast[j - 2]! + 1)
      row.push(edits)
    }
    beforeLast = last
    last = row
  }
  return last[b.length]!
}
