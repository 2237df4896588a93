/** Changes to inputs, as damage and malice make them; all from one seed. */

import type { Random } from '@homing/base'

/** Heads of MessagePack that say how much follows. */
const HEADS = [0x9f, 0xc1, 0xc4, 0xc6, 0xc9, 0xcb, 0xcf, 0xd3, 0xd9, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0x92, 0xff]
/** Lengths that are not so, in both orders of bytes. */
const CLAIMS = ['ddffffffff', 'dfffffffff', 'c6ffffffff', 'dbffffffff', 'dd01000000', 'ffffffff', '00000080']
/** Pieces that mean something in one of the texts that are read. */
const PIECES =
  `" ' \\ \\u0000 \\ud800 [ ] { } : , / // ? ? # & = % %00 %zz @ * . .. - _ ~ | ; + \n \r\n \t \0 é \u202e 💥 - \n- ` +
  `&a *a !!x {{ }} {% %} {# data: event: [DONE] 0 -1 1e999 99999999999999999999 65536 null true NaN ` +
  `__proto__ constructor tcp:// ipc:// nats:// http:// https:// file:// unix: [::1] [::1%25lo] 0.0.0.0 key_env= =`
const TEXT_PIECES = PIECES.split(/ (?!$)/)
const STRETCHED = [
  'a',
  '1',
  ' ',
  '"',
  '\\',
  '[',
  '{',
  '}',
  ':',
  '.',
  '/',
  '\n',
  ',',
  '%',
  '=',
  'a="',
  '{{',
  'a:',
  '&',
]
export const STRETCH_BYTES = 96 * 1024
const DEPTH = 5000
/** What changes have made longer is not tried. */
const JSON_CHARACTERS_MAX = 256 * 1024

export function pick<T>(random: Random, of: readonly T[]): T {
  return of[random.below(of.length)]!
}

function joined(...parts: readonly Uint8Array[]): Uint8Array {
  return Uint8Array.from(Buffer.concat(parts))
}

/** A few changes of a kind each. */
export function mutated(random: Random, from: Uint8Array, others: readonly Uint8Array[]): Uint8Array {
  let bytes: Uint8Array = Uint8Array.from(from)
  for (let changes = random.below(5); changes >= 0; changes--) {
    const at = random.below(bytes.length + 1)
    const insert = (part: Uint8Array): Uint8Array => joined(bytes.subarray(0, at), part, bytes.subarray(at))
    switch (random.below(9)) {
      case 0:
        bytes[at] = random.below(256)
        break
      case 1:
        bytes[at] = pick(random, HEADS)
        break
      case 2:
        bytes[at] = (bytes[at] ?? 0) ^ (1 << random.below(8))
        break
      case 3:
        bytes = bytes.slice(0, at)
        break
      case 4:
        bytes = insert(random.bytes(random.below(9)))
        break
      case 5: {
        const part = bytes.slice(at, at + random.below(64))
        bytes = insert(joined(...new Array<Uint8Array>(random.below(20)).fill(part)))
        break
      }
      case 6: {
        const claim = Buffer.from(pick(random, CLAIMS), 'hex')
        bytes =
          random.below(2) === 0 ? insert(claim) : joined(bytes.subarray(0, at), claim, bytes.subarray(at + 5))
        break
      }
      case 7:
        bytes = insert(new Uint8Array(random.below(2000)).fill(pick(random, HEADS)))
        break
      default: {
        const other = pick(random, others)
        bytes = joined(bytes.subarray(0, at), other.subarray(random.below(other.length + 1)))
      }
    }
  }
  return bytes
}

export function mutatedText(random: Random, from: string): string {
  let text = from
  for (let changes = random.below(4); changes >= 0; changes--) {
    const at = random.below(text.length + 1)
    const to = random.below(3) === 0 ? at + random.below(12) : at
    text = `${text.slice(0, at)}${pick(random, TEXT_PIECES).repeat(random.below(40) === 0 ? 200 : 1)}${text.slice(to)}`
  }
  return text
}

/** One long piece of the same in the middle: what takes its square of time is seen. */
export function stretched(random: Random, from: string): string {
  const at = random.below(from.length + 1)
  const piece = pick(random, STRETCHED)
  return `${from.slice(0, at)}${piece.repeat(STRETCH_BYTES / piece.length)}${from.slice(at)}`
}

/** JSON with some of its values changed; undefined: the text is no JSON, or became too long. */
export function mutatedJson(random: Random, from: string): string | undefined {
  let value: unknown
  try {
    value = JSON.parse(from)
  } catch {
    return undefined
  }
  for (let changes = random.below(3); changes >= 0; changes--) value = changedAt(random, value)
  const text = JSON.stringify(value)
  return text === undefined || text.length > JSON_CHARACTERS_MAX
    ? undefined
    : text.replace('"@deep"', '['.repeat(DEPTH) + ']'.repeat(DEPTH))
}

function changedAt(random: Random, value: unknown): unknown {
  if (typeof value === 'object' && value !== null && random.below(8) > 0) {
    const names = Object.keys(value)
    if (names.length > 0) {
      const name = pick(random, names)
      const inner: unknown = changedAt(random, (value as Record<string, unknown>)[name])
      if (Array.isArray(value)) return value.map((one, i) => (String(i) === name ? inner : one))
      const copy: Record<string, unknown> = { ...value, [name]: inner }
      if (random.below(8) === 0) delete copy[name]
      if (random.below(8) === 0) copy[pick(random, ['__proto__x', 'constructor', 'length', ''])] = inner
      return copy
    }
  }
  return pick<() => unknown>(random, [
    () => null,
    () => true,
    () => -1,
    () => 0,
    () => 1e308,
    () => 2 ** 53,
    () => 2 ** 31,
    () => 0.5,
    () => '',
    () => 'x'.repeat(random.below(5000)),
    () => '-1',
    () => '\ud800',
    () => [],
    () => ({}),
    // Neither String() nor Number() takes it.
    () => ({ toString: 1, valueOf: 1 }),
    () => '@deep',
    () => [value, value],
    () => ({ a: value }),
    () => new Array<unknown>(random.below(100)).fill(value),
    () => pick(random, TEXT_PIECES),
  ])()
}
