/**
 * `homing select`: the choice of workers alone, as a process.
 *
 * Standard output: the ready line, then what to try. Logs go to standard error.
 */

import { asksForHelp, parseSettings, renderHelp, selectCommand } from '@homing/config'
import type { CommandEntry } from './command-entry.ts'
import { runService } from './running-service.ts'
import { serveSelect } from './start-select.ts'

export const selectCommandEntry: CommandEntry = {
  summary: selectCommand.summary,

  async run(argv) {
    if (asksForHelp(selectCommand, argv)) {
      console.log(renderHelp(selectCommand))
      return 0
    }
    const { settings, warnings } = parseSettings(selectCommand, argv, process.env)
    return runService({
      settings,
      warnings,
      start: () => serveSelect(settings),
      lines: ({ url }) => [
        `select ready on ${url} (pid ${process.pid})`,
        `no workers yet: POST ${url}/workers`,
      ],
    })
  },
}
