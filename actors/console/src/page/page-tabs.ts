/**
 * Page tabs: a page builder for each place where tabs are open, which are gateways, or the console's own
 * port.
 *
 * Each place asks for updates by itself and gets all sections that are due; a builder for all would give each
 * section to the place that asks first. A builder lives while its place has tabs.
 *
 * Bounds   PLACES_MAX builders.
 */

import type { StreamCounts } from '@homing/http'
import type { PageFigures } from '../metrics/page-metrics.ts'
import type { PageBuilder } from './page-builder.ts'

/** More than there are gateways. */
const PLACES_MAX = 16
const NO_TABS: StreamCounts = { readers: 0, skippedFrames: 0, cutReaders: 0, refusedReaders: 0 }

interface Place {
  readonly builder: PageBuilder
  counts: StreamCounts
}

export class PageTabs {
  readonly #make: () => PageBuilder
  readonly #places = new Map<string, Place>()

  constructor(make: () => PageBuilder) {
    this.#make = make
  }

  /** The builder of a place. */
  of(name: string): PageBuilder {
    return this.#place(name).builder
  }

  /** What has become of the tabs of a place. */
  take(name: string, counts: StreamCounts): void {
    const place = this.#place(name)
    place.counts = counts
    place.builder.tabs = counts.readers
  }

  /** Of all places. */
  get figures(): PageFigures {
    const sum = { ...NO_TABS, updates: 0, buildMs: 0 }
    for (const { builder, counts } of this.#places.values()) {
      sum.readers += counts.readers
      sum.skippedFrames += counts.skippedFrames
      sum.cutReaders += counts.cutReaders
      sum.refusedReaders += counts.refusedReaders
      sum.updates += builder.cost.updates
      sum.buildMs = Math.max(sum.buildMs, builder.cost.buildMs)
    }
    return sum
  }

  #place(name: string): Place {
    const known = this.#places.get(name)
    if (known !== undefined) return known
    if (this.#places.size >= PLACES_MAX) throw new Error(`${PLACES_MAX} places have tabs of the page`)
    const place: Place = { builder: this.#make(), counts: NO_TABS }
    this.#places.set(name, place)
    return place
  }
}
