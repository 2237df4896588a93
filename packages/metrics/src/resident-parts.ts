/**
 * Resident parts: what the memory of this process that the system calls resident consists of. By the kind of
 * its mappings, so that all parts together are what the system reports.
 *
 *   program     files: the program of Node, libraries
 *   compiled    code that the JavaScript engine made
 *   allocator   what was asked of the C library: buffers, parsers, what is known of modules. It keeps what
 *               was given back, for use again
 *   heaps       JavaScript objects of all threads, and memory that threads share: index, bodies, rings
 *   other       stacks, and what is smaller
 *
 * The C library's arenas have no name: one begins at a multiple of ARENA_BYTES, and what it does not use yet,
 * up to the next multiple, follows as a mapping without rights. The engine's pages and shared memory begin at
 * multiples of ENGINE_PAGE_BYTES.
 */

import { readFile, readFileSync } from 'node:fs'

const SMAPS = '/proc/self/smaps'
const ARENA_BYTES = 64 * 2 ** 20
const ENGINE_PAGE_BYTES = 256 * 2 ** 10
const KIBIBYTE = 1024

export const RESIDENT_PARTS = ['program', 'compiled', 'allocator', 'heaps', 'other'] as const
export type ResidentPart = (typeof RESIDENT_PARTS)[number]
export type ResidentBytes = Readonly<Record<ResidentPart, number>>

interface Mapping {
  readonly start: number
  readonly end: number
  readonly rights: string
  readonly name: string
  bytes: number
}

const HEAD = /^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+\s*(.*)$/
const RESIDENT = /^Rss:\s+(\d+) kB/

/**
 * Reads them without holding the thread up: the system takes 10 ms to count the pages of 300 MB, so a reading
 * is made on another thread and serves the next scrape. Only the first is waited for.
 */
export class ResidentReader {
  #last: ResidentBytes | undefined
  #isReading = false

  /** The last reading. Throws where the system does not tell. */
  read(): ResidentBytes {
    const last = this.#last ?? residentParts(readFileSync(SMAPS, 'latin1'))
    this.#last = last
    this.#readNext()
    return last
  }

  #readNext(): void {
    if (this.#isReading) return
    this.#isReading = true
    readFile(SMAPS, 'latin1', (error, text) => {
      this.#isReading = false
      // The next scrape tries by itself, and fails where it is seen.
      this.#last = error === null ? residentParts(text) : undefined
    })
  }
}

/** Bytes of each part. `smaps`: the text of `/proc/self/smaps`. */
export function residentParts(smaps: string): ResidentBytes {
  const mappings: Mapping[] = []
  for (const line of smaps.split('\n')) {
    const resident = line.startsWith('Rss:') ? RESIDENT.exec(line) : undefined
    if (resident) mappings.at(-1)!.bytes = Number(resident[1]) * KIBIBYTE
    // The other lines of a mapping begin with a capital letter.
    const head = /^[0-9a-f]/.test(line) ? HEAD.exec(line) : undefined
    if (!head) continue
    const [, start, end, rights, name] = head as unknown as [string, string, string, string, string]
    mappings.push({
      start: Number.parseInt(start, 16),
      end: Number.parseInt(end, 16),
      rights,
      name,
      bytes: 0,
    })
  }
  const parts = { program: 0, compiled: 0, allocator: 0, heaps: 0, other: 0 }
  for (const [at, one] of mappings.entries()) parts[partOf(one, mappings[at + 1])] += one.bytes
  return parts
}

function partOf(one: Mapping, next: Mapping | undefined): ResidentPart {
  const { start, rights, name } = one
  if (name === '[heap]' || isArena(one, next)) return 'allocator'
  if (name.startsWith('/') && !name.startsWith('/dev/') && !name.startsWith('/memfd')) return 'program'
  if (name !== '' && !name.startsWith('/')) return 'other'
  if (rights.includes('x')) return 'compiled'
  return start % ENGINE_PAGE_BYTES === 0 ? 'heaps' : 'other'
}

function isArena({ start, end, rights, name }: Mapping, next: Mapping | undefined): boolean {
  if (name !== '' || start % ARENA_BYTES !== 0 || !rights.startsWith('rw')) return false
  const isFull = end - start === ARENA_BYTES
  return isFull || (next?.start === end && next.rights.startsWith('---') && next.end - start >= ARENA_BYTES)
}
