/**
 * Observatory: main's view of what every thread writes about itself. It holds the memory of each thread over
 * all its lives; for dedicated threads that are not coming back, the latest GONE_MAX, and the sums of earlier
 * ones.
 */

import type { Clock, Log } from '@homing/base'
import { endLife, readCounters, readLife, type ThreadCounters, totalOf } from './counts.ts'
import { type FlightEvent, FlightRecorder, readFlight, textOfEvent } from './flight.ts'
import { ThreadMemory } from './thread-memory.ts'

const GONE_MAX = 32
/** Lines in the log for a thread that died. */
const DUMP_EVENTS = 20
/** Dumps within DUMP_WINDOW_MS; a thread that dies again and again fills no log. */
const DUMPS_MAX = 3
const DUMP_WINDOW_MS = 60_000

/** The figures of every thread, and their sums. */
export interface SystemCounters {
  /** Main first, then in the order in which they were started; those that have ended too. */
  readonly threads: readonly ThreadCounters[]
  /** Over all threads that there ever were. `thread` is `all`. */
  readonly total: ThreadCounters
}

export class Observatory {
  readonly #memories = new Map<string, ThreadMemory>()
  readonly #gone = new Set<string>()
  #forgotten: ThreadCounters | undefined = undefined
  #dumpTimesMs: number[] = []

  /** `main` is the memory of main itself, which calls itself `name`. */
  constructor(name: string, main: ThreadMemory) {
    this.#memories.set(name, main)
  }

  /** The memory of a thread, for its next life. */
  memoryFor(thread: string): ThreadMemory {
    this.#gone.delete(thread)
    let memory = this.#memories.get(thread)
    if (memory === undefined) {
      memory = new ThreadMemory()
      this.#memories.set(thread, memory)
    }
    return memory
  }

  /** The last events of a thread go to the log, which is where people look for the death of a thread. */
  dump(thread: string, nowMs: number, log: Log): void {
    const memory = this.#memories.get(thread)
    if (memory === undefined) return
    this.#dumpTimesMs = this.#dumpTimesMs.filter(timeMs => nowMs - timeMs < DUMP_WINDOW_MS)
    if (this.#dumpTimesMs.length >= DUMPS_MAX) return
    this.#dumpTimesMs.push(nowMs)
    for (const event of readFlight(memory, DUMP_EVENTS)) {
      const at = new Date(event.atMs).toISOString()
      log.warn({ peer: thread, at, event: textOfEvent(event) }, 'last events of a thread')
    }
  }

  /** A life of a thread has ended: from here on its memory is main's, until the next life begins. */
  ended(thread: string, life: number, clock: Clock): void {
    const memory = this.#memories.get(thread)
    if (memory === undefined || readLife(memory).life !== life) return
    new FlightRecorder(memory, clock).noteEnd(life)
    endLife(memory.numbers)
  }

  /** A thread is not coming back. */
  gone(thread: string): void {
    if (!this.#memories.has(thread)) return
    this.#gone.add(thread)
    if (this.#gone.size <= GONE_MAX) return
    const oldest = this.#gone.values().next().value!
    this.#gone.delete(oldest)
    const last = readCounters(oldest, this.#memories.get(oldest)!)
    this.#forgotten = totalOf(this.#forgotten === undefined ? [last] : [this.#forgotten, last])
    this.#memories.delete(oldest)
  }

  counters(): SystemCounters {
    const threads = [...this.#memories].map(([name, memory]) => readCounters(name, memory))
    return {
      threads,
      total: totalOf(this.#forgotten === undefined ? threads : [this.#forgotten, ...threads]),
    }
  }

  /** The last `limit` events of a thread, the oldest first; undefined: no such thread is known. */
  flight(thread: string, limit: number): readonly FlightEvent[] | undefined {
    const memory = this.#memories.get(thread)
    return memory === undefined ? undefined : readFlight(memory, limit)
  }
}
