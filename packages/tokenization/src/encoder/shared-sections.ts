/**
 * Shared sections: typed arrays packed into one SharedArrayBuffer, and the list of where each lies.
 *
 *   | section 0 | pad | section 1 | pad | …     each begins at a multiple of 8 bytes
 *
 * The list is structured-clonable, so a thread that gets buffer and list has all sections again, without a
 * copy. Sections are written before the buffer is handed out and never after, so no access is atomic.
 */

/** What a section may be. */
export type SectionArray = Uint8Array | Uint16Array | Int32Array

/** Where a section lies. */
export interface Section {
  readonly kind: 'Uint8' | 'Uint16' | 'Int32'
  readonly offset: number
  readonly length: number
}

/** Copies the arrays into one shared buffer; `sections[name]` is where an array went. */
export function packSections<Name extends string>(
  arrays: Readonly<Record<Name, SectionArray>>,
): { readonly memory: SharedArrayBuffer; readonly sections: Readonly<Record<Name, Section>> } {
  const names = Object.keys(arrays) as Name[]
  const sections = {} as Record<Name, Section>
  let size = 0
  for (const name of names) {
    const array = arrays[name]
    sections[name] = { kind: kindOf(array), offset: size, length: array.length }
    size = (size + array.byteLength + 7) & ~7
  }
  const memory = new SharedArrayBuffer(size)
  const bytes = new Uint8Array(memory)
  for (const name of names) {
    const array = arrays[name]
    bytes.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), sections[name].offset)
  }
  return { memory, sections }
}

export function uint8Section(memory: SharedArrayBuffer, { offset, length }: Section): Uint8Array {
  return new Uint8Array(memory, offset, length)
}

export function uint16Section(memory: SharedArrayBuffer, { offset, length }: Section): Uint16Array {
  return new Uint16Array(memory, offset, length)
}

export function int32Section(memory: SharedArrayBuffer, { offset, length }: Section): Int32Array {
  return new Int32Array(memory, offset, length)
}

function kindOf(array: SectionArray): Section['kind'] {
  if (array instanceof Uint8Array) return 'Uint8'
  return array instanceof Uint16Array ? 'Uint16' : 'Int32'
}
