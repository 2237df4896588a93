/** HeapGauge: heap use of a thread, and its subscribers. */

import { getHeapStatistics } from 'node:v8'
import { resourceLimits } from 'node:worker_threads'
import type { Counts } from './counts.ts'
import type { FlightRecorder } from './flight.ts'

/** With a subscriber that acts on it, the next look is due this long after the last. */
const GAUGE_LOOK_MS = 5
/** From this share of the limit on the flight recorder notes it. */
const PRESSURE = 0.7
const MEBIBYTE = 2 ** 20

export interface HeapSize {
  readonly usedBytes: number
  readonly limitBytes: number
}

export class HeapGauge {
  /** Told at every look which share of its limit the heap uses, 0 … 1. */
  onPressure: ((share: number) => void) | undefined = undefined
  readonly #counts: Counts
  readonly #flight: FlightRecorder
  readonly #size: () => HeapSize
  #lookedMs = Number.NEGATIVE_INFINITY

  constructor(counts: Counts, flight: FlightRecorder, size: () => HeapSize = heapSize) {
    this.#counts = counts
    this.#flight = flight
    this.#size = size
  }

  /** Share of the limit that is in use, garbage included, 0 … 1. */
  share(): number {
    const { usedBytes, limitBytes } = this.#size()
    return usedBytes / limitBytes
  }

  /** True when a subscriber that acts on it has not been told for a while. */
  isLookDue(nowMs: number): boolean {
    return this.onPressure !== undefined && nowMs - this.#lookedMs >= GAUGE_LOOK_MS
  }

  look(nowMs: number): void {
    this.#lookedMs = nowMs
    const { usedBytes, limitBytes } = this.#size()
    this.#counts.heap(usedBytes, limitBytes)
    const share = usedBytes / limitBytes
    if (share >= PRESSURE) this.#flight.note('heapPressure', 0, '', Math.round(share * 100))
    this.onPressure?.(share)
  }
}

function heapSize(): HeapSize {
  const { used_heap_size, heap_size_limit } = getHeapStatistics()
  // V8 adds several times the young generation, which does not help an old one that is full.
  const oldBytes = (resourceLimits.maxOldGenerationSizeMb ?? 0) * MEBIBYTE
  return { usedBytes: used_heap_size, limitBytes: oldBytes > 0 ? oldBytes : heap_size_limit }
}
