/**
 * RingStock: the rings between the threads of a system, on main: who writes and reads them, and which are
 * unused, so that new links can use them again.
 *
 *   in use ──its writer is over──▶ orphaned ──its reader is done with it──▶ free ──a link──▶ in use
 *
 * A ring is written by one life and read by one thread, over all its lives. The reader of an orphan still
 * takes the published frames; it is done once it has linked the next life of the writer's thread, or has
 * ended itself.
 *
 * Why not leave them to the garbage collectors: every thread that had a link to the ring has to collect it,
 * and no collector counts shared memory as its own. 1,500 deaths cost 250 MiB that way.
 *
 * The rings of a thread that does not come back are free once the other side has forgotten the thread.
 *
 * If a life could not be ended, the rings that it wrote or read are never used again: it may wake up. Free
 * rings beyond FREE_BYTES_MAX are left to the garbage collectors.
 */

import type { Life } from '../life.ts'
import { RING_DATA, ringBytes } from './ring.ts'

const SILENT_WORDS = 16

interface Orphan {
  readonly ring: SharedArrayBuffer
  readonly writer: Life
  readonly readerUid: number
}

/** The two rings of a link. */
interface RingPair {
  readonly toRunning: SharedArrayBuffer
  readonly toStarting: SharedArrayBuffer
  /** The starting life inherits what an earlier one of its thread had not taken. */
  readonly isHeir: boolean
}

const FREE_BYTES_MAX = 64 << 20

export class RingStock {
  readonly #ringWords: number
  /** By the writing life, then by the reading thread, which inherits the ring from life to life. */
  readonly #rings = new Map<number, Map<string, SharedArrayBuffer>>()
  /** The present life of each thread that has a link. */
  readonly #lives = new Map<string, number>()
  #orphans: Orphan[] = []
  /** Rings that were read by a life that may wake up. */
  readonly #unsafe = new WeakSet<SharedArrayBuffer>()
  /** For links to come, up to FREE_BYTES_MAX. */
  readonly #free: SharedArrayBuffer[] = []

  /** `ringWords`: of the frames of each ring; a power of two. */
  constructor(ringWords: number) {
    this.#ringWords = ringWords
  }

  /** Rings that the next links get. */
  get freeCount(): number {
    return this.#free.length
  }

  link(running: Life, starting: Life): RingPair {
    this.#lives.set(running.name, running.uid).set(starting.name, starting.uid)
    const inherited = this.#rings.get(running.uid)?.get(starting.name)
    return {
      toStarting: inherited ?? this.#newRing(running, starting.name),
      toRunning: this.#newRing(starting, running.name),
      isHeir: inherited !== undefined,
    }
  }

  /** For a thread that is between two lives: its next one inherits `toAway`. Nobody writes `silent`. */
  linkAway(
    name: string,
    starting: Life,
  ): { readonly toAway: SharedArrayBuffer; readonly silent: SharedArrayBuffer } {
    this.#lives.set(starting.name, starting.uid)
    return { toAway: this.#newRing(starting, name), silent: new SharedArrayBuffer(ringBytes(SILENT_WORDS)) }
  }

  #newRing(writer: Life, reader: string): SharedArrayBuffer {
    const ring = this.#free.pop() ?? new SharedArrayBuffer(ringBytes(this.#ringWords))
    const ofWriter = this.#rings.get(writer.uid) ?? new Map<string, SharedArrayBuffer>()
    this.#rings.set(writer.uid, ofWriter.set(reader, ring))
    return ring
  }

  /** `reader` has linked `writer`, and with that closed its links to earlier lives of that thread. */
  linked(reader: Life, writer: Life): void {
    this.#release(
      orphan =>
        orphan.readerUid === reader.uid &&
        orphan.writer.name === writer.name &&
        orphan.writer.uid < writer.uid,
    )
  }

  /** A life is over; `hasEnded`: it runs no more, for certain. */
  forgetLife({ name, uid }: Life, hasEnded: boolean): void {
    if (this.#lives.get(name) === uid) this.#lives.delete(name)
    if (!hasEnded) this.#taint(name, uid)
    this.#release(({ readerUid }) => readerUid === uid)
    const written = this.#rings.get(uid)
    this.#rings.delete(uid)
    if (written === undefined || !hasEnded) return
    for (const [reader, ring] of written) {
      const readerUid = this.#lives.get(reader)
      if (readerUid === undefined) this.#put(ring)
      else this.#orphans.push({ ring, writer: { name, uid }, readerUid })
    }
  }

  /** A life that may wake up has read these. */
  #taint(reader: string, uid: number): void {
    for (const { ring, readerUid } of this.#orphans) if (readerUid === uid) this.#unsafe.add(ring)
    for (const ofWriter of this.#rings.values()) {
      const ring = ofWriter.get(reader)
      if (ring !== undefined) this.#unsafe.add(ring)
    }
  }

  /**
   * `life` has forgotten a thread that is not coming back: it reads nothing from there and writes nothing to
   * it.
   */
  forgot(life: Life, thread: string): void {
    this.#release(({ readerUid, writer }) => readerUid === life.uid && writer.name === thread)
    const written = this.#rings.get(life.uid)
    const ring = written?.get(thread)
    if (ring === undefined) return
    written!.delete(thread)
    this.#put(ring)
  }

  #release(isDone: (orphan: Orphan) => boolean): void {
    for (const orphan of this.#orphans) if (isDone(orphan)) this.#put(orphan.ring)
    this.#orphans = this.#orphans.filter(orphan => !isDone(orphan))
  }

  #put(ring: SharedArrayBuffer): void {
    if (this.#unsafe.has(ring) || (this.#free.length + 1) * ring.byteLength > FREE_BYTES_MAX) return
    // As new: what stands beyond is overwritten before it is read.
    new Int32Array(ring, 0, RING_DATA).fill(0)
    this.#free.push(ring)
  }
}
