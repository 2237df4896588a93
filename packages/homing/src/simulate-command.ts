/**
 * `homing simulate`: one routing policy beside the other on the same traffic, in a simulated fleet.
 *
 * Standard output: the fit to a decision log, if there is one, then the tables. Standard error: progress and
 * warnings. Ctrl-C ends what runs and prints, and writes, what is done so far; the exit code is then 130.
 * Results are kept, so the next run goes on from there.
 */

import { homedir } from 'node:os'
import { join } from 'node:path'
import { CodedError, systemClock } from '@homing/base'
import {
  asksForHelp,
  parseSettings,
  renderHelp,
  type SimulateSettings,
  simulateCommand,
} from '@homing/config'
import {
  type CellRun,
  CellRunner,
  PoorFitError,
  ResultStore,
  renderHtml,
  renderJson,
  renderText,
  runSweep,
  summarize,
  UnknownPolicyError,
} from '@homing/simulate'
import type { CommandEntry } from './command-entry.ts'
import { errorLine } from './error-line.ts'
import { type ProgressFacts, ProgressLine } from './progress-line.ts'
import { checkWritable, writeReport } from './report-files.ts'
import { aboutOf, columnsOf, logLines, planOf, type SimulatePlan } from './simulate-plan.ts'
import { untilStopped } from './until-stopped.ts'

const EXIT_BAD_OPTION = 2
const EXIT_INTERRUPTED = 130

export const simulateCommandEntry: CommandEntry = {
  summary: simulateCommand.summary,

  async run(argv) {
    if (asksForHelp(simulateCommand, argv)) {
      console.log(renderHelp(simulateCommand))
      return 0
    }
    const { settings, warnings, sources } = parseSettings(simulateCommand, argv, process.env, {
      listChecks: { policies: items => items.flatMap(faultsOfPolicies) },
    })
    for (const warning of warnings) console.error(`homing: ${warning}`)
    let plan: SimulatePlan
    try {
      // Before hours of work, not after them.
      for (const path of [settings.json, settings.html]) if (path !== undefined) checkWritable(path)
      plan = await planOf(settings, sources)
    } catch (thrown) {
      if (!(thrown instanceof CodedError)) throw thrown
      // An option names a file that is not there, or is not what it should be: as bad as any bad option.
      console.error(errorLine(thrown))
      return EXIT_BAD_OPTION
    }
    if (plan.log !== undefined) {
      console.log(logLines(plan.log).join('\n'))
      const { faults } = plan.log.fit
      if (faults.length > 0 && !settings.anyway) throw new PoorFitError(faults)
    }
    const about = aboutOf(plan, argv)

    const runner = new CellRunner({
      threads: settings.threads,
      store: settings.cache ? openStore(settings) : undefined,
      clock: systemClock,
    })
    const progress = new ProgressLine(process.stderr, systemClock, () => progressFacts(runner))
    const stopped = untilStopped(systemClock, { detach: false })
    void stopped.then(() => runner.stop())
    try {
      const outcome = await runSweep(plan, runner)
      progress.end()
      const summary = summarize(
        outcome,
        plan.columns.map(({ name }) => name),
      )
      process.stdout.write(renderText(summary))
      if (settings.json !== undefined) writeReport(settings.json, renderJson(about, outcome, summary))
      if (settings.html !== undefined) writeReport(settings.html, renderHtml(about, summary))
      return outcome.isComplete ? 0 : EXIT_INTERRUPTED
    } finally {
      progress.end()
      await runner.stop()
    }
  },
}

function faultsOfPolicies(item: string | undefined): string[] {
  if (item === undefined) return []
  try {
    columnsOf([item])
    return []
  } catch (thrown) {
    if (thrown instanceof UnknownPolicyError) return [thrown.message]
    throw thrown
  }
}

function progressFacts(runner: CellRunner): ProgressFacts {
  const { share, leftMs, cellsDone, cellsKept, cellsExpected } = runner.progress
  const kept = cellsKept > 0 ? `, ${cellsKept} of them from earlier runs` : ''
  return { share, leftMs, words: `${cellsDone} of ${cellsExpected} cells${kept}` }
}

function openStore(settings: SimulateSettings): ResultStore<CellRun> {
  const home = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache')
  return new ResultStore({
    folder: settings.cacheDir ?? join(home, 'homing', 'simulate'),
    bytesMax: settings.cacheBytesMax,
    clock: systemClock,
    onTrouble: sentence => console.error(`homing: ${sentence}`),
  })
}
