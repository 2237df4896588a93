/** The commands, by the name that is typed. */

import type { CommandEntry } from './command-entry.ts'
import { doctorCommandEntry } from './doctor-command.ts'
import { engineCommandEntry } from './engine-command.ts'
import { indexerCommandEntry } from './indexer-command.ts'
import { routerCommandEntry } from './router-command.ts'
import { sidecarCommandEntry } from './sidecar-command.ts'
import { simulateCommandEntry } from './simulate-command.ts'

export const COMMANDS: Readonly<Record<string, CommandEntry>> = {
  router: routerCommandEntry,
  engine: engineCommandEntry,
  sidecar: sidecarCommandEntry,
  indexer: indexerCommandEntry,
  simulate: simulateCommandEntry,
  doctor: doctorCommandEntry,
}
