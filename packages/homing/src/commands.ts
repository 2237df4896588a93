/** The commands, by the name that is typed. */

import { engineCommandEntry } from './engine-command.ts'
import { routerCommandEntry } from './router-command.ts'

export interface CommandEntry {
  /** One sentence for the overview. */
  readonly summary: string
  /** Runs until it is done; answers the exit code. */
  readonly run: (argv: readonly string[]) => Promise<number>
}

export const COMMANDS: Readonly<Record<string, CommandEntry>> = {
  router: routerCommandEntry,
  engine: engineCommandEntry,
}
