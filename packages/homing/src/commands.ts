/**
 * The commands, by the name that is typed. Each is loaded when it is run: together they are a thousand
 * modules, and a router needs half of them.
 */

import type { CommandEntry } from './command-entry.ts'

export const COMMANDS: Readonly<Record<string, () => Promise<CommandEntry>>> = {
  router: async () => (await import('./router-command.ts')).routerCommandEntry,
  picker: async () => (await import('./router-command.ts')).pickerCommandEntry,
  engine: async () => (await import('./engine-command.ts')).engineCommandEntry,
  sidecar: async () => (await import('./sidecar-command.ts')).sidecarCommandEntry,
  indexer: async () => (await import('./indexer-command.ts')).indexerCommandEntry,
  slots: async () => (await import('./slots-command.ts')).slotsCommandEntry,
  select: async () => (await import('./select-command.ts')).selectCommandEntry,
  simulate: async () => (await import('./simulate-command.ts')).simulateCommandEntry,
  load: async () => (await import('./load-command.ts')).loadCommandEntry,
  doctor: async () => (await import('./doctor-command.ts')).doctorCommandEntry,
  key: async () => (await import('./key-command.ts')).keyCommandEntry,
}
