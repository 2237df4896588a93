/** HeapGauge: heap use of a thread, and its subscribers. */

import { getHeapStatistics } from 'node:v8'
import { resourceLimits } from 'node:worker_threads'
import type { Counts, HeapFigures } from './counts.ts'
import type { FlightRecorder } from './flight.ts'

/** With a subscriber that acts on it, the next look is due this long after the last. */
const GAUGE_LOOK_MS = 5
/** From this share of the limit on the flight recorder notes it. */
const PRESSURE = 0.7
const MEBIBYTE = 2 ** 20

export class HeapGauge {
  /** Told at every look which share of its limit the heap uses, 0 … 1. */
  onPressure: ((share: number) => void) | undefined = undefined
  readonly #counts: Counts
  readonly #flight: FlightRecorder
  readonly #size: () => HeapFigures
  #lookedMs = Number.NEGATIVE_INFINITY

  constructor(counts: Counts, flight: FlightRecorder, size: () => HeapFigures = heapSize) {
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

  /** Takes down what the heap is now, for those who read the figures. */
  note(): HeapFigures {
    const size = this.#size()
    this.#counts.heap(size)
    return size
  }

  look(nowMs: number): void {
    this.#lookedMs = nowMs
    const { usedBytes, limitBytes } = this.note()
    const share = usedBytes / limitBytes
    if (share >= PRESSURE) this.#flight.note('heapPressure', 0, '', Math.round(share * 100))
    this.onPressure?.(share)
  }
}

function heapSize(): HeapFigures {
  const { used_heap_size, heap_size_limit, total_physical_size } = getHeapStatistics()
  // V8 adds several times the young generation, which does not help an old one that is full.
  const oldBytes = (resourceLimits.maxOldGenerationSizeMb ?? 0) * MEBIBYTE
  return {
    usedBytes: used_heap_size,
    limitBytes: oldBytes > 0 ? oldBytes : heap_size_limit,
    residentBytes: total_physical_size,
  }
}
