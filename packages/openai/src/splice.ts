/**
 * Changes to a scanned body that leave every other byte alone.
 *
 * A scan describes the bytes it was made of: after a change, scan again.
 */

import type { ByteRange, RequestScan } from './types.ts'

/**
 * The body without the members of these names, repeated ones included. The same array when there is
 * nothing to cut; else a new one.
 */
export function cutMembers(bytes: Uint8Array, scan: RequestScan, names: readonly string[]): Uint8Array {
  const { members } = scan
  const cuts: ByteRange[] = []
  let hasKept = false
  for (const [i, { name, member }] of members.entries()) {
    if (!names.includes(name)) {
      hasKept = true
    } else if (hasKept) {
      // The comma before it goes too.
      cuts.push({ start: members[i - 1]!.member.end, end: member.end })
    } else {
      // Nothing is left before it: the comma after it goes, where there is one.
      cuts.push({ start: member.start, end: members[i + 1]?.member.start ?? member.end })
    }
  }
  if (cuts.length === 0) return bytes

  const cutBytes = cuts.reduce((sum, { start, end }) => sum + end - start, 0)
  const result = new Uint8Array(bytes.length - cutBytes)
  let from = 0
  let to = 0
  for (const { start, end } of cuts) {
    result.set(bytes.subarray(from, start), to)
    to += start - from
    from = end
  }
  result.set(bytes.subarray(from), to)
  return result
}

/** One place of a body and what stands there instead. It belongs to the bytes that it was made for. */
export interface BodyEdit extends ByteRange {
  readonly text: string
}

/** The body with the edit made; always a new array. */
export function editBody(bytes: Uint8Array, { start, end, text }: BodyEdit): Uint8Array {
  const inserted = Buffer.from(text)
  const result = new Uint8Array(bytes.length - (end - start) + inserted.length)
  result.set(bytes.subarray(0, start), 0)
  result.set(inserted, start)
  result.set(bytes.subarray(end), start + inserted.length)
  return result
}

/**
 * The edit that makes it `"name": jsonText`: in place of the value that counts, or as a new last member.
 * `jsonText` must be valid JSON; it is not checked.
 */
export function memberEdit(scan: RequestScan, name: string, jsonText: string): BodyEdit {
  const existing = scan.byName.get(name)
  if (existing !== undefined) return { ...existing.value, text: jsonText }
  const last = scan.members.at(-1)
  const at = last?.member.end ?? scan.open + 1
  const comma = last === undefined ? '' : ','
  return { start: at, end: at, text: `${comma}${JSON.stringify(name)}:${jsonText}` }
}

/** The body with that edit made; always a new array. */
export function spliceMember(
  bytes: Uint8Array,
  scan: RequestScan,
  name: string,
  jsonText: string,
): Uint8Array {
  return editBody(bytes, memberEdit(scan, name, jsonText))
}
