/**
 * Several changes to the members of a scanned body at once, in one copy; every other byte stays.
 *
 *   set    the value that counts is replaced, or the member is added behind the last one that stays
 *   cut    all members of the name go, with their comma
 */

import type { ByteRange, RequestScan } from './types.ts'

export interface MemberChanges {
  /** JSON texts by name; they are not checked. */
  readonly set: Readonly<Record<string, string>>
  readonly cut?: readonly string[]
}

interface Edit extends ByteRange {
  readonly text: string
}

/** Always a new array. */
export function editMembers(
  bytes: Uint8Array,
  scan: RequestScan,
  { set, cut = [] }: MemberChanges,
): Uint8Array {
  const edits: Edit[] = []
  let lastKept: number | undefined
  for (const [i, { name, member }] of scan.members.entries()) {
    if (!cut.includes(name)) {
      lastKept = member.end
      continue
    }
    // The comma before it goes too, or the one behind it where nothing stays before it.
    const start = lastKept === undefined ? member.start : scan.members[i - 1]!.member.end
    const end = lastKept === undefined ? (scan.members[i + 1]?.member.start ?? member.end) : member.end
    edits.push({ start, end, text: '' })
  }
  const added: string[] = []
  for (const [name, text] of Object.entries(set)) {
    const existing = scan.byName.get(name)
    if (existing === undefined || cut.includes(name)) added.push(`${JSON.stringify(name)}:${text}`)
    else edits.push({ ...existing.value, text })
  }
  const at = lastKept ?? scan.open + 1
  if (added.length > 0)
    edits.push({ start: at, end: at, text: `${lastKept === undefined ? '' : ','}${added.join(',')}` })
  edits.sort((a, b) => a.start - b.start || a.end - b.end)
  const pieces: Uint8Array[] = []
  let from = 0
  for (const { start, end, text } of edits) {
    pieces.push(bytes.subarray(from, start), Buffer.from(text))
    from = end
  }
  pieces.push(bytes.subarray(from))
  return Buffer.concat(pieces)
}
