/**
 * Pack and unpack: a message as it travels between threads. Structured clone copies plain data but
 * no function, so the refs and replies in a message are taken out and noted as *patches*: the path to
 * each and what to put back there. A message without any passes untouched, after one scan.
 *
 * A view of part of a buffer is cut to its own bytes, because clone would copy the whole buffer;
 * memory of a SharedArrayBuffer and of a shared WebAssembly.Memory is shared, as always.
 */

import { UnserializableMessageError } from '../values/errors.ts'
import { recordOf } from '../values/thrown.ts'
import type { LayoutDescription } from './description.ts'

export type Path = readonly (string | number)[]

/** A ref: thread, id and name of the actor. */
export interface RefPatch {
  readonly path: Path
  readonly kind: 'ref'
  readonly thread: string
  readonly id: number
  readonly name: string
  /** How messages to it are written, when its definition says so. */
  readonly layout?: LayoutDescription
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

export type Patch = RefPatch | ReplyPatch
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
export const DEPTH_MAX = 64
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
  try {
    if (!needsWork(value, 0, describeReply)) return { body: value, patches: 0 }
  } catch (error) {
    throw refusalOf(value, describeReply, error)
  }
  const patches: Patch[] = []
  const body = rewrite(value, [], patches, describeReply)
  return { body, patches: patches.length === 0 ? 0 : patches }
}

/** The value that was packed; `body` is changed in place. */
export function unpack(body: unknown, patches: readonly Patch[] | 0, reader: PatchReader): unknown {
  if (patches === 0) return body
  let root = body
  for (const patch of patches) {
    const value = patch.kind === 'ref' ? reader.ref(patch) : reader.reply(patch)
    const { path } = patch
    if (path.length === 0) {
      root = value
      continue
    }
    let holder = root as Record<string | number, unknown>
    for (let i = 0; i < path.length - 1; i++) holder = holder[path[i]!] as Record<string | number, unknown>
    holder[path[path.length - 1]!] = value
  }
  return root
}

/** True when something in `value` has to be replaced before it is cloned. */
function needsWork(value: unknown, depth: number, describeReply: DescribeReply): boolean {
  if (typeof value !== 'object') {
    if (typeof value === 'function') {
      if (describeReply(value as never) !== undefined) return true
      throw new Refusal('a function', 'only refs and the reply of an ask may travel')
    }
    if (typeof value === 'symbol') throw new Refusal('a symbol', 'it cannot be cloned')
    return false
  }
  if (value === null) return false
  if (depth > DEPTH_MAX) throw tooDeep()
  if (Array.isArray(value)) {
    let found = false
    for (let i = 0; i < value.length; i++) {
      const item: unknown = value[i]
      if (typeof item === 'number' || typeof item === 'string') continue
      if (needsWork(item, depth + 1, describeReply)) found = true
    }
    return found
  }
  const prototype = Object.getPrototypeOf(value) as unknown
  if (prototype === Object.prototype || prototype === null) {
    let found = false
    for (const key in value) {
      const item = (value as Record<string, unknown>)[key]
      if (typeof item === 'number' || typeof item === 'string') continue
      if (needsWork(item, depth + 1, describeReply)) found = true
    }
    return found
  }
  if (value instanceof BaseRef) return true
  if (ArrayBuffer.isView(value)) return isPartialView(value)
  if (value instanceof Map || value instanceof Set) {
    for (const entry of value) {
      if (needsWork(entry, depth + 1, describeReply) && holdsPatch(entry)) {
        throw new Refusal('a Map or Set', 'refs and replies travel in plain objects and arrays only')
      }
    }
    return false
  }
  if (isCloneable(value)) return false
  const className = (value as { constructor?: { name?: string } }).constructor?.name ?? 'an unknown class'
  throw new Refusal(
    `an instance of ${className}`,
    'only plain objects, arrays, typed arrays and refs may travel',
  )
}

/** For an object below DEPTH_MAX. */
export function tooDeep(): Refusal {
  return new Refusal('a value', `it is cyclic or nested deeper than ${DEPTH_MAX} levels`)
}

/** Why `value` may not travel, with the path to what is wrong in it: looked for only now that something is. */
export function refusalOf(
  value: unknown,
  describeReply: DescribeReply,
  first: unknown,
): UnserializableMessageError {
  let path = ''
  let cause = first
  let holder = value
  for (let depth = 1; ; depth++) {
    const found = firstRefused(holder, depth, describeReply)
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
  describeReply: DescribeReply,
): { readonly key: string; readonly value: unknown; readonly cause: unknown } | undefined {
  if (typeof holder !== 'object' || holder === null || holder instanceof BaseRef) return undefined
  for (const key of Object.keys(holder)) {
    let value: unknown
    try {
      value = (holder as Record<string, unknown>)[key]
      needsWork(value, depth, describeReply)
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

/** `value` with everything that needs work replaced; parts that need none are the same objects. */
function rewrite(
  value: unknown,
  path: (string | number)[],
  patches: Patch[],
  describeReply: DescribeReply,
): unknown {
  if (typeof value === 'function') {
    patches.push({ path: [...path], ...describeReply(value as never)! })
    return null
  }
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof BaseRef) {
    patches.push({ path: [...path], ...value.target() })
    return null
  }
  if (ArrayBuffer.isView(value)) return isPartialView(value) ? cutView(value) : value
  if (!needsWork(value, path.length, describeReply)) return value
  if (Array.isArray(value)) {
    return value.map((item, index) => {
      path.push(index)
      const replaced = rewrite(item, path, patches, describeReply)
      path.pop()
      return replaced
    })
  }
  const copy: Record<string, unknown> = {}
  for (const key of Object.keys(value)) {
    path.push(key)
    copy[key] = rewrite((value as Record<string, unknown>)[key], path, patches, describeReply)
    path.pop()
  }
  return copy
}

function holdsPatch(value: unknown): boolean {
  if (typeof value === 'function' || value instanceof BaseRef) return true
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return false
  return Object.values(value).some(holdsPatch)
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
