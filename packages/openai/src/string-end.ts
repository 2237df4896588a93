/**
 * The end of a long JSON text in quotes: the WebAssembly module (../wasm/string-end.ts) and its memory, which
 * parts of the text are copied to. A copy costs a thirtieth of looking at each byte here.
 *
 * Each thread has its own module; it is instantiated while this file is imported.
 */

import { STRING_END_WASM_BASE64 } from './string-end-wasm.ts'

/** The part of the global WebAssembly used here; the type libraries of this workspace lack it. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object
  readonly Instance: new (module: object) => { readonly exports: object }
}

interface StringEndModule {
  readonly memory: { readonly buffer: ArrayBuffer }
  room(): number
  find(from: number, size: number): number
}

/** Of the answer of `find`: the text goes on. */
const AT_END = 1
/** The first part: most texts end in it. Each next one is four times as long. */
const PART_BYTES_MIN = 4096
const PART_BYTES_MAX = 65_536
const WORD_BYTES = 8

const module = new WebAssembly.Instance(new WebAssembly.Module(Buffer.from(STRING_END_WASM_BASE64, 'base64')))
  .exports as StringEndModule
const room = new Uint8Array(module.memory.buffer, module.room(), PART_BYTES_MAX)

/**
 * From a byte inside a text in quotes to the quote that ends it, or to a byte that is at fault: a control
 * character, the backslash of an invalid escape. Where `bytes` end before that, to a byte of the text near
 * their end.
 */
export function stringEnd(bytes: Uint8Array, from: number): number {
  const { length } = bytes
  let at = from
  for (let partBytes = PART_BYTES_MIN; ; partBytes = Math.min(4 * partBytes, PART_BYTES_MAX)) {
    // Out of shared memory whole words are copied much faster.
    const start = Math.max(0, at - ((bytes.byteOffset + at) % WORD_BYTES))
    const size = Math.min(partBytes, length - start)
    room.set(start === 0 && size === length ? bytes : bytes.subarray(start, start + size))
    const found = module.find(at - start, size)
    at = start + (found >>> 2)
    if ((found & 3) !== AT_END || start + size === length) return at
  }
}
