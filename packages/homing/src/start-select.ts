/**
 * A running selection service as a value: for the command line, for tests, and for programs that embed it.
 */

import { selectService } from '@homing/actors/select-service'
import { completeSettings, type GivenSettings, type SelectSettings, selectCommand } from '@homing/config'
import { checkPort } from './port-check.ts'
import type { RunningService } from './running-service.ts'
import { loadSelection } from './selection-module.ts'
import { READY_MS_MAX, serveService } from './serve-service.ts'
import { STOP_MS_MAX } from './stop-service.ts'

/**
 * What a program can set; what it leaves out has the default of the command line. See docs/configuration.md
 * for each.
 */
export type GivenSelectSettings = Omit<GivenSettings<SelectSettings>, 'detach'>

/** All settings of a selection service. Throws SettingsError for all that is wrong with them at once. */
export function selectSettingsOf(given: GivenSelectSettings): SelectSettings {
  return completeSettings(selectCommand, given, { without: ['detach'] })
}

/** Starts a selection service in this process, with settings that have no faults; see `startSelect`. */
export async function serveSelect(settings: SelectSettings): Promise<RunningService> {
  const { selectionModule } = settings
  const customSelection =
    selectionModule === undefined ? undefined : await loadSelection(selectionModule, 'select')
  await checkPort(settings)
  const { ready: _, ...running } = await serveService({
    name: 'select',
    called: 'the selection service',
    settings,
    pools: { events: { count: settings.eventThreads } },
    workers: 0,
    readyMsMax: READY_MS_MAX,
    spawn: (system, openRequestsMax) =>
      system.spawn(selectService, {
        name: 'select-service',
        args: {
          ...settings,
          settings,
          customSelection,
          openRequestsMax,
          traceIdHeader: settings.traceIdHeader.toLowerCase(),
        },
        shutdown: STOP_MS_MAX,
      }),
  })
  return running
}
