/** Metrics of the page: open tabs and cost. */

import type { StreamCounts } from '@homing/http'
import type { Metrics } from '@homing/metrics'

export interface PageFigures extends StreamCounts {
  readonly updates: number
  readonly buildMs: number
}

export function collectPage(metrics: Metrics, figures: () => PageFigures): void {
  const tabs = metrics.gauge({
    name: 'homing_page_open_tabs',
    help: 'Tabs of the page for operators that are open (--page-tabs-max).',
  })
  const build = metrics.gauge({
    name: 'homing_page_build_seconds',
    help: 'What the last update of the page took, for all tabs together.',
  })
  const updates = metrics.counter({
    name: 'homing_page_updates_total',
    help: 'Updates of the page that were made, for all tabs together.',
  })
  const skipped = metrics.counter({
    name: 'homing_page_skipped_updates_total',
    help: 'Updates that a tab was not sent because it had not taken the one before.',
  })
  const closed = metrics.counter({
    name: 'homing_page_closed_tabs_total',
    help: 'Tabs that were refused, because as many as may be were open, or cut, because they took nothing.',
    labels: ['reason'],
  })
  metrics.collect(() => {
    const now = figures()
    tabs.set(now.readers)
    build.set(now.buildMs / 1000)
    updates.setTotal(now.updates)
    skipped.setTotal(now.skippedFrames)
    closed.setTotal(now.refusedReaders, { reason: 'refused' })
    closed.setTotal(now.cutReaders, { reason: 'stalled' })
  })
}
