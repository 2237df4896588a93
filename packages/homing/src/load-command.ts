/**
 * `homing load`: sends requests to a fleet, measures the answers, and compares two fleets.
 *
 * Standard output: tables, and the JSON object last with `--json -`. Standard error: progress and warnings.
 * Ctrl-C ends what runs and prints what was measured so far; the exit code is then 130.
 */

import { silentLog, systemClock, systemRandom } from '@homing/base'
import { asksForHelp, loadCommand, parseSettings, renderHelp } from '@homing/config'
import {
  compareSides,
  faultsOfResult,
  Load,
  renderLoadHtml,
  renderLoadJson,
  renderLoadText,
} from '@homing/load-generator'
import { systemTransport } from '@homing/transport'
import type { CommandEntry } from './command-entry.ts'
import { loadPlanOf } from './load-plan.ts'
import { ProgressLine } from './progress-line.ts'
import { checkWritable, writeReport } from './report-files.ts'
import { untilStopped } from './until-stopped.ts'

const EXIT_INTERRUPTED = 130
const LOAD_CONNECT_MS_MAX = 10_000

export const loadCommandEntry: CommandEntry = {
  summary: 'Sends requests to a fleet of yours and measures the answers; two fleets with --against.',

  async run(argv) {
    if (asksForHelp(loadCommand, argv)) {
      console.log(renderHelp(loadCommand))
      return 0
    }
    const { settings, warnings, sources } = parseSettings(loadCommand, argv, process.env)
    for (const warning of warnings) console.error(`homing: ${warning}`)
    // Before minutes of load, not after them.
    for (const path of [settings.json, settings.report])
      if (path !== undefined && path !== '-') checkWritable(path)
    const transport = systemTransport({
      clock: systemClock,
      log: silentLog,
      connectTimeoutMs: LOAD_CONNECT_MS_MAX,
    })
    try {
      const world = { http: transport.http, clock: systemClock, random: systemRandom }
      const { plan, about, progressOf } = await loadPlanOf(settings, sources, argv, world)
      const load = new Load(plan)
      const progress = new ProgressLine(process.stderr, systemClock, () => progressOf(load.progress))
      void untilStopped(systemClock, { detach: false }).then(() => load.stop())
      const result = await load.run().finally(() => progress.end())
      const [ours, theirs] = result.sides
      const compared = theirs === undefined ? [] : compareSides(ours!, theirs)
      const faults = faultsOfResult(result, settings)
      process.stdout.write(renderLoadText(about, result, compared, faults))
      if (settings.report !== undefined)
        writeReport(settings.report, renderLoadHtml(about, result, compared, faults))
      const json = renderLoadJson(about, result, compared, faults)
      if (settings.json === '-') process.stdout.write(`${json}\n`)
      else if (settings.json !== undefined) writeReport(settings.json, `${json}\n`)
      if (!result.isComplete) return EXIT_INTERRUPTED
      return faults.length === 0 ? 0 : 1
    } finally {
      transport.close()
    }
  },
}
