/**
 * Loop F: memory. Events are streamed from the file in a process of their own, so that only the index is
 * there: what is alive at the end stored into a fresh index (`rssLive`), the whole schedule
 * (`rssAfterSchedule`), and then everything removed (`rssEmptied`). Resident bytes less those before the
 * index; arrays are what the index counts.
 */

import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Measures } from '../harness.ts'
import { openCorpus } from './corpora.ts'
import type { Footprint } from './memory-probe.ts'
import { capacityMb, choice } from './parameters.ts'

export function memoryLoop(): Measures {
  const { path, livePath } = openCorpus(choice)
  const live = probe(livePath, livePath)
  const schedule = probe(path, livePath)
  return {
    rssLive: { value: live.rssBytes, unit: 'B' },
    rssPerMembership: { value: live.rssBytes / live.memberships, unit: 'B' },
    arraysLivePerMembership: { value: live.arrayBytes / live.memberships, unit: 'B' },
    arraysPerMembership: { value: schedule.arrayBytes / schedule.memberships, unit: 'B' },
    rssAfterSchedule: { value: schedule.rssBytes, unit: 'B' },
    rssAfterScheduleShare: { value: schedule.rssBytes / live.rssBytes, unit: '× live' },
    rssEmptied: { value: schedule.emptiedRssBytes, unit: 'B' },
    rssEmptiedShare: { value: schedule.emptiedRssBytes / live.rssBytes, unit: '× live' },
    arraysEmptied: { value: schedule.emptiedArrayBytes, unit: 'B' },
  }
}

function probe(path: string, livePath: string): Footprint {
  const script = fileURLToPath(new URL('./memory-probe.ts', import.meta.url))
  const flags = ['--expose-gc', '--max-semi-space-size=1', '--max-old-space-size=256']
  const words = [path, livePath, String(capacityMb)]
  return JSON.parse(
    execFileSync(process.execPath, [...flags, script, ...words], { encoding: 'utf8' }),
  ) as Footprint
}
