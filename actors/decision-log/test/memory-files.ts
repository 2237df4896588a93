/** Files of a decision log in memory, on a disk that may be full or hang. */

import type { LineFile, LineFiles } from '@homing/base'
import { beginsAsDecisionLog } from '@homing/trace'

interface Entry {
  bytes: Buffer
}

export class MemoryFiles implements LineFiles {
  /** Room on the disk; what does not fit is written in part. */
  room = Number.POSITIVE_INFINITY
  /** Writes wait for it. */
  hanging: Promise<void> | undefined
  /** What opening a file rejects with. */
  refusal: string | undefined
  readonly #entries = new Map<string, Entry>()

  get paths(): readonly string[] {
    return [...this.#entries.keys()].sort()
  }

  text(path: string): string {
    return this.#entries.get(path)?.bytes.toString() ?? ''
  }

  put(path: string, text: string): void {
    this.#entries.set(path, { bytes: Buffer.from(text) })
  }

  open(path: string): Promise<LineFile> {
    if (this.refusal !== undefined) return Promise.reject(new Error(this.refusal))
    const entry = this.#entries.get(path) ?? { bytes: Buffer.alloc(0) }
    if (!beginsAsDecisionLog(entry.bytes.toString())) return Promise.reject(new Error('no decision log'))
    this.#entries.set(path, entry)
    entry.bytes = entry.bytes.subarray(0, entry.bytes.lastIndexOf(10) + 1)
    return Promise.resolve({
      bytes: entry.bytes.length,
      append: bytes => this.#append(entry, bytes),
      cut: bytes => {
        this.room += entry.bytes.length - bytes
        entry.bytes = entry.bytes.subarray(0, bytes)
        return Promise.resolve()
      },
      isAt: there => Promise.resolve(this.#entries.get(there) === entry),
      close: () => Promise.resolve(),
    })
  }

  rename(from: string, to: string): Promise<void> {
    const entry = this.#entries.get(from)
    if (entry !== undefined) this.#entries.set(to, entry)
    this.#entries.delete(from)
    return Promise.resolve()
  }

  remove(path: string): Promise<void> {
    this.#entries.delete(path)
    return Promise.resolve()
  }

  async #append(entry: Entry, bytes: Uint8Array): Promise<number> {
    await this.hanging
    if (this.room === 0) throw new Error('ENOSPC: no space left on device, write')
    const taken = bytes.subarray(0, this.room)
    this.room -= taken.length
    entry.bytes = Buffer.concat([entry.bytes, taken])
    return taken.length
  }
}
