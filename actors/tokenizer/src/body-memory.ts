/**
 * Body memory: the beginnings of request bodies that this thread has read, with the messages found in them.
 * So only the new part of a conversation is scanned, decoded and parsed.
 *
 *   body      {"model":…,"messages":[{…},{…},{…},{…}],…}
 *   known     ────────────────────────────▶|               to the end of the last message in equal windows
 *   read                                   |─────────────▶
 *
 * Invariants
 *   I1  A known message is used only if all bytes before its end are equal. So a body gives the same values
 *       as without this memory, for any client and template.
 *   I2  Values are shared between requests and never changed: `prepareChat` builds its own, templates cannot
 *       change them.
 *
 * Bounds   `bytesMax`, over windows and values.
 */

import { type RequestScan, type ScanPoint, scanPoint, scanRequest } from '@homing/openai'
import {
  ByteWindows,
  type PrefixNode,
  PrefixTree,
  type PythonDict,
  type PythonValue,
  tryParseJson,
} from '@homing/tokenization'

/** The messages that a window adds to the windows before it. */
interface KnownMessages {
  /** Messages that end in it. */
  readonly messages: readonly PythonValue[]
  /** Behind the last of them; undefined: there is none. */
  readonly point: ScanPoint | undefined
}

export interface ReadBody {
  readonly scan: RequestScan
  /**
   * The values of the body; undefined where Python would not read it so. Throws RenderingRefusedError for too
   * deep nesting.
   */
  readonly values: () => PythonDict | undefined
}

const COMMA = 0x2c
const SPACE = 0x20
const WINDOW_BYTES = 2048
/** About what a value takes beside its texts and members, on a 64-bit machine. */
const CONTAINER_BYTES = 250
const MEMBER_BYTES = 40

export class BodyMemory {
  readonly #tree: PrefixTree<Uint8Array, KnownMessages>

  constructor(bytesMax: number) {
    this.#tree = new PrefixTree(bytesMax)
  }

  get bytes(): number {
    return this.#tree.bytes
  }

  /** Throws MalformedJsonError. */
  read(body: Uint8Array): ReadBody {
    const windows = new ByteWindows(body, WINDOW_BYTES)
    const path = this.#tree.find(0, windows)
    const { changes } = this.#tree
    const point = path.findLast(node => node.payload.point !== undefined)?.payload.point
    const scan = scanRequest(body, point)
    return { scan, values: once(() => this.#values(body, scan, windows, path, point, changes)) }
  }

  #values(
    body: Uint8Array,
    scan: RequestScan,
    windows: ByteWindows,
    path: readonly PrefixNode<KnownMessages>[],
    point: ScanPoint | undefined,
    changes: number,
  ): PythonDict | undefined {
    const { messages: list } = scan
    const known = path.flatMap(node => node.payload.messages)
    const added: PythonValue[] = []
    let start = point?.at ?? (list === undefined ? 0 : list.valueStart + 1)
    for (const end of list?.ends ?? []) {
      // A comma and white space may come before the message.
      const message = parse(body, startOf(body, start), end)
      if (message === undefined) return undefined
      added.push(message)
      start = end
    }
    const request: PythonDict = new Map()
    for (const [number, { name, value }] of scan.members.entries()) {
      const parsed = number === list?.number ? [...known, ...added] : parse(body, value.start, value.end)
      if (parsed === undefined) return undefined
      request.set(name, parsed)
    }
    if (list !== undefined) this.#remember(body, scan, windows, path, added, changes)
    return request
  }

  #remember(
    body: Uint8Array,
    scan: RequestScan,
    windows: ByteWindows,
    path: readonly PrefixNode<KnownMessages>[],
    added: readonly PythonValue[],
    changes: number,
  ): void {
    // Another body may have been read since, and its windows kept: then this one has less to add, or more.
    if (this.#tree.changes !== changes) {
      const current = this.#tree.find(0, windows)
      if (current.length !== path.length || current.some((node, i) => node !== path[i])) return
    }
    const ends = scan.messages!.ends
    // All of them are behind the known point, so none is carried by a known window.
    let next = 0
    this.#tree.grow(0, path, windows, number => {
      const from = next
      while (next < ends.length && ends[next]! <= (number + 1) * WINDOW_BYTES) next++
      const point = next === from ? undefined : scanPoint(body, scan, next - 1)
      if (point === undefined) {
        next = from
        return { payload: { messages: [], point }, bytes: 0 }
      }
      const messages = added.slice(from, next)
      return { payload: { messages, point }, bytes: bytesOf(messages) }
    })
  }
}

/** What throws does so each time. */
function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined
  return () => {
    made ??= { value: make() }
    return made.value
  }
}

/** About what a value takes; texts count two bytes a character, though most take one. */
function bytesOf(value: PythonValue): number {
  if (typeof value === 'string') return MEMBER_BYTES + 2 * value.length
  if (Array.isArray(value)) return value.reduce((sum: number, item) => sum + bytesOf(item), CONTAINER_BYTES)
  if (!(value instanceof Map)) return MEMBER_BYTES
  let sum = CONTAINER_BYTES
  for (const [name, item] of value) sum += MEMBER_BYTES + 2 * String(name).length + bytesOf(item)
  return sum
}

/** Where a message starts, behind its comma and white space. */
function startOf(body: Uint8Array, from: number): number {
  let at = from
  while (body[at] === COMMA || body[at]! <= SPACE) at++
  return at
}

function parse(body: Uint8Array, start: number, end: number): PythonValue | undefined {
  return tryParseJson(Buffer.from(body.buffer, body.byteOffset + start, end - start).toString())
}
