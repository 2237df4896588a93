/**
 * Pack and unpack: a message as it travels between threads. Structured clone copies plain data but
 * no function, so the refs and replies in a message are taken out and noted as *patches*: the path to
 * each and what to put back there. A message without any passes untouched, after one scan.
 *
 * A part that occurs in several places may be reached in 2 to the power of PACKED_DEPTH_MAX ways. It is
 * replaced in the first place and a patch leads there from the others; a scan that has become long remembers
 * the objects that it has seen.
 *
 * A view of part of a buffer is cut to its own bytes, because clone would copy the whole buffer;
 * memory of a SharedArrayBuffer and of a shared WebAssembly.Memory is shared, as always.
 */

import { UnserializableMessageError } from '../values/errors.ts'
import { recordOf } from '../values/thrown.ts'

export type Path = readonly (string | number)[]

/** A ref: thread, id and name of the actor. */
export interface RefPatch {
  readonly path: Path
  readonly kind: 'ref'
  readonly thread: string
  readonly id: number
  readonly name: string
  /** Message types that overtake the others. */
  readonly control?: readonly string[]
}

/** A reply: the thread that asked and the number of the ask there. */
export interface ReplyPatch {
  readonly path: Path
  readonly kind: 'reply'
  readonly thread: string
  readonly corr: number
}

/** A part that is also at the path `first`, where it has patches of its own. */
export interface SamePatch {
  readonly path: Path
  readonly kind: 'same'
  readonly first: Path
}

export type Patch = RefPatch | ReplyPatch | SamePatch
export type RefTarget = Omit<RefPatch, 'path'>
export type ReplyTarget = Omit<ReplyPatch, 'path'>

/** Base of all refs, so that a scan recognizes one. */
export abstract class BaseRef {
  /** How another thread finds the actor. */
  abstract target(): RefTarget
}

/** Says how a function that is the reply of an ask travels; undefined for any other function. */
export type DescribeReply = (reply: (value: never) => void) => ReplyTarget | undefined

/** Makes the values that patches stand for. */
export interface PatchReader {
  readonly ref: (target: RefTarget) => unknown
  readonly reply: (target: ReplyTarget) => unknown
}

export interface Packed {
  readonly body: unknown
  readonly patches: readonly Patch[] | 0
}

/** Deeper nesting, and so every cycle, is refused. */
export const PACKED_DEPTH_MAX = 64
/**
 * Objects, items and fields that a scan looks at before it remembers objects: most messages are over by then.
 */
const STEPS_UNREMEMBERED = 4096
/** Steps of a path that are told. */
const PATH_STEPS_MAX = 8

/** The part of the global WebAssembly used here; the type libraries of this workspace lack it. */
declare const WebAssembly: { readonly Memory: new () => { readonly buffer: ArrayBufferLike } }

/** Something in a value may not travel. */
export class Refusal extends Error {
  readonly what: string
  readonly why: string

  constructor(what: string, why: string) {
    super(why)
    this.what = what
    this.why = why
  }
}

/** `value` as it can travel. Throws UnserializableMessageError when something in it cannot. */
export function pack(value: unknown, describeReply: DescribeReply): Packed {
  let scan: Scan
  try {
    if (isFlat(value)) return { body: value, patches: 0 }
    scan = newScan(describeReply)
    if (workIn(value, 0, scan) === WORK.none) return { body: value, patches: 0 }
  } catch (error) {
    throw refusalOf(value, describeReply, error)
  }
  const rewriting: Rewriting = { scan, patches: [], firstPaths: new Map() }
  const body = rewrite(value, [], rewriting)
  return { body, patches: rewriting.patches.length === 0 ? 0 : rewriting.patches }
}

/** An object of numbers, strings and booleans, as most messages are: it travels as it is. */
function isFlat(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const prototype = Object.getPrototypeOf(value) as unknown
  if (prototype !== Object.prototype && prototype !== null) return false
  for (const key in value) {
    const kind = typeof (value as Record<string, unknown>)[key]
    if (kind !== 'number' && kind !== 'string' && kind !== 'boolean') return false
  }
  return true
}

/** The value that was packed; `body` is changed in place. */
export function unpack(body: unknown, patches: readonly Patch[] | 0, reader: PatchReader): unknown {
  if (patches === 0) return body
  let root = body
  for (const patch of patches) {
    root = putAt(root, patch.path, read(patch, root, reader))
  }
  return root
}

function read(patch: Patch, root: unknown, reader: PatchReader): unknown {
  if (patch.kind === 'ref') return reader.ref(patch)
  return patch.kind === 'reply' ? reader.reply(patch) : valueAt(root, patch.first, patch.first.length)
}

/** Puts `value` where the path leads to in `root`; returns what is `root` then. */
export function putAt(root: unknown, path: Path, value: unknown): unknown {
  if (path.length === 0) return value
  const holder = valueAt(root, path, path.length - 1) as Record<string | number, unknown>
  holder[path[path.length - 1]!] = value
  return root
}

/** What the first `steps` of the path lead to. */
function valueAt(root: unknown, path: Path, steps: number): unknown {
  let value = root
  for (let i = 0; i < steps; i++) value = (value as Record<string | number, unknown>)[path[i]!]
  return value
}

/** What is to be done with a value before it is cloned; what is more includes what is less. */
const WORK = {
  none: 0,
  /** Views of parts of buffers are to be cut. */
  cut: 1,
  /** Refs or replies are to be replaced. */
  patch: 2,
} as const
type Work = (typeof WORK)[keyof typeof WORK]

interface Scan {
  readonly describeReply: DescribeReply
  steps: number
  /**
   * Of the objects that were seen whole since there were too many steps. Those on the way to a cycle never
   * are.
   */
  known: Map<object, Work> | undefined
}

function newScan(describeReply: DescribeReply): Scan {
  return { describeReply, steps: 0, known: undefined }
}

/** Throws Refusal for what may not travel. `depth`: of the value in its message. */
function workIn(value: unknown, depth: number, scan: Scan): Work {
  if (typeof value !== 'object') {
    if (typeof value === 'function') {
      if (scan.describeReply(value as never) !== undefined) return WORK.patch
      throw new Refusal('a function', 'only refs and the reply of an ask may travel')
    }
    if (typeof value === 'symbol') throw new Refusal('a symbol', 'it cannot be cloned')
    return WORK.none
  }
  if (value === null) return WORK.none
  if (depth > PACKED_DEPTH_MAX) throw tooDeep()
  const known = scan.known?.get(value)
  if (known !== undefined) return known
  let most: Work = WORK.none
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const item: unknown = value[i]
      if (typeof item === 'number' || typeof item === 'string') continue
      const work = workIn(item, depth + 1, scan)
      if (work > most) most = work
    }
    seen(value, value.length, most, scan)
    return most
  }
  const prototype = Object.getPrototypeOf(value) as unknown
  if (prototype === Object.prototype || prototype === null) {
    let fields = 0
    for (const key in value) {
      fields++
      const item = (value as Record<string, unknown>)[key]
      if (typeof item === 'number' || typeof item === 'string') continue
      const work = workIn(item, depth + 1, scan)
      if (work > most) most = work
    }
    seen(value, fields, most, scan)
    return most
  }
  if (value instanceof BaseRef) return WORK.patch
  if (ArrayBuffer.isView(value)) return isPartialView(value) ? WORK.cut : WORK.none
  if (value instanceof Map || value instanceof Set) {
    for (const entry of value) {
      if (workIn(entry, depth + 1, scan) === WORK.patch)
        throw new Refusal('a Map or Set', 'refs and replies travel in plain objects and arrays only')
    }
    seen(value, value.size, WORK.none, scan)
    return WORK.none
  }
  if (isCloneable(value)) return WORK.none
  const className = (value as { constructor?: { name?: string } }).constructor?.name ?? 'an unknown class'
  throw new Refusal(
    `an instance of ${className}`,
    'only plain objects, arrays, typed arrays and refs may travel',
  )
}

/** Counts the parts of an object that was seen whole, and remembers it once there have been many. */
function seen(value: object, parts: number, work: Work, scan: Scan): void {
  scan.steps += parts + 1
  if (scan.steps > STEPS_UNREMEMBERED) {
    scan.known ??= new Map()
    scan.known.set(value, work)
  }
}

/** For an object below PACKED_DEPTH_MAX. */
export function tooDeep(): Refusal {
  return new Refusal('a value', `it is cyclic or nested deeper than ${PACKED_DEPTH_MAX} levels`)
}

/**
 * Why `value` may not travel, with the path to what is wrong in it: looked for only now that something is.
 */
export function refusalOf(
  value: unknown,
  describeReply: DescribeReply,
  first: unknown,
): UnserializableMessageError {
  let path = ''
  let cause = first
  let holder = value
  const scan = newScan(describeReply)
  for (let depth = 1; ; depth++) {
    const found = firstRefused(holder, depth, scan)
    if (found === undefined) break
    if (depth > PATH_STEPS_MAX) {
      path += '…'
      break
    }
    path += Array.isArray(holder) ? `[${found.key}]` : stepTo(found.key, path === '')
    cause = found.cause
    holder = found.value
  }
  const { what, why } =
    cause instanceof Refusal ? cause : new Refusal('a value', `it throws ${recordOf(cause).message}`)
  return new UnserializableMessageError(what, why, path)
}

/** The first of the values in a plain object or array that may not travel, or cannot be read. */
function firstRefused(
  holder: unknown,
  depth: number,
  scan: Scan,
): { readonly key: string; readonly value: unknown; readonly cause: unknown } | undefined {
  if (typeof holder !== 'object' || holder === null || holder instanceof BaseRef) return undefined
  for (const key of Object.keys(holder)) {
    let value: unknown
    try {
      value = (holder as Record<string, unknown>)[key]
      workIn(value, depth, scan)
    } catch (cause) {
      return { key, value, cause }
    }
  }
  return undefined
}

function stepTo(key: string, isFirst: boolean): string {
  if (!/^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(key)) return `[${JSON.stringify(key)}]`
  return isFirst ? key : `.${key}`
}

interface Rewriting {
  readonly scan: Scan
  readonly patches: Patch[]
  /** Of the objects and arrays that were copied. */
  readonly firstPaths: Map<object, Path>
}

/** `value` with everything that needs work replaced; parts that need none are the same objects. */
function rewrite(value: unknown, path: (string | number)[], to: Rewriting): unknown {
  if (typeof value === 'function') {
    to.patches.push({ path: [...path], ...to.scan.describeReply(value as never)! })
    return null
  }
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof BaseRef) {
    to.patches.push({ path: [...path], ...value.target() })
    return null
  }
  if (ArrayBuffer.isView(value)) return isPartialView(value) ? cutView(value) : value
  const first = to.firstPaths.get(value)
  if (first !== undefined) {
    to.patches.push({ path: [...path], kind: 'same', first })
    return null
  }
  if (workIn(value, path.length, to.scan) === WORK.none) return value
  const at = [...path]
  let copy: unknown
  if (Array.isArray(value)) copy = value.map((item, index) => rewriteAt(item, index, path, to))
  else {
    const fields: Record<string, unknown> = {}
    for (const key of Object.keys(value)) {
      fields[key] = rewriteAt((value as Record<string, unknown>)[key], key, path, to)
    }
    copy = fields
  }
  to.firstPaths.set(value, at)
  return copy
}

function rewriteAt(value: unknown, key: string | number, path: (string | number)[], to: Rewriting): unknown {
  path.push(key)
  const rewritten = rewrite(value, path, to)
  path.pop()
  return rewritten
}

function isPartialView(view: ArrayBufferView): boolean {
  return view.byteLength !== view.buffer.byteLength && view.buffer instanceof ArrayBuffer
}

function cutView(view: ArrayBufferView): ArrayBufferView {
  const bytes = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) as ArrayBuffer
  if (view instanceof DataView) return new DataView(bytes)
  if (view instanceof Uint8Array) return new Uint8Array(bytes)
  const View = view.constructor as new (buffer: ArrayBuffer) => ArrayBufferView
  return new View(bytes)
}

function isCloneable(value: object): boolean {
  return (
    value instanceof ArrayBuffer ||
    value instanceof SharedArrayBuffer ||
    (value instanceof WebAssembly.Memory && value.buffer instanceof SharedArrayBuffer) ||
    value instanceof Date ||
    value instanceof RegExp ||
    value instanceof Error
  )
}
