/**
 * `homing slots`: the slot tracker alone, as a process.
 *
 * Standard output: the ready line, then what to try. Logs go to standard error.
 */

import { asksForHelp, parseSettings, renderHelp, slotsCommand } from '@homing/config'
import type { CommandEntry } from './command-entry.ts'
import { runService } from './running-service.ts'
import { serveSlots } from './start-slots.ts'

export const slotsCommandEntry: CommandEntry = {
  summary: slotsCommand.summary,

  async run(argv) {
    if (asksForHelp(slotsCommand, argv)) {
      console.log(renderHelp(slotsCommand))
      return 0
    }
    const { settings, warnings } = parseSettings(slotsCommand, argv, process.env)
    return runService({
      settings,
      warnings,
      start: () => serveSlots(settings),
      lines: ({ url }) => [
        `slots ready on ${url} (pid ${process.pid})`,
        `no workers yet: POST ${url}/register`,
      ],
    })
  },
}
