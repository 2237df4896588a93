/** A running slot tracker as a value: for the command line, for tests, and for programs that embed it. */

import { type SlotReplicas, slotService } from '@homing/actors/slot-service'
import { completeSettings, type GivenSettings, type SlotsSettings, slotsCommand } from '@homing/config'
import { checkPort } from './port-check.ts'
import type { RunningService } from './running-service.ts'
import { READY_MS_MAX, serveService } from './serve-service.ts'
import { STOP_MS_MAX } from './stop-service.ts'

/**
 * What a program can set; what it leaves out has the default of the command line. See docs/configuration.md
 * for each.
 */
export type GivenSlotsSettings = Omit<GivenSettings<SlotsSettings>, 'detach'>

/** All settings of a slot tracker. Throws SettingsError for all that is wrong with them at once. */
export function slotsSettingsOf(given: GivenSlotsSettings): SlotsSettings {
  return completeSettings(slotsCommand, given, { without: ['detach'] })
}

/** Starts a slot tracker in this process, with settings that have no faults; see `startSlots`. */
export async function serveSlots(settings: SlotsSettings): Promise<RunningService> {
  await checkPort(settings)
  const { ready: _, ...running } = await serveService({
    name: 'slots',
    called: 'the slot service',
    settings,
    workers: 0,
    readyMsMax: READY_MS_MAX,
    spawn: (system, openRequestsMax) =>
      system.spawn(slotService, {
        name: 'slot-service',
        args: {
          ...settings,
          openRequestsMax,
          replicas: replicasOf(settings),
          traceIdHeader: settings.traceIdHeader.toLowerCase(),
        },
        shutdown: STOP_MS_MAX,
      }),
  })
  return running
}

function replicasOf(settings: SlotsSettings): SlotReplicas | undefined {
  const { replicaEndpoint, replicas, replicaDelayMs, replicaExpiryMs } = settings
  if (replicaEndpoint === undefined) return undefined
  return {
    endpoint: replicaEndpoint,
    peers: replicas,
    delayMs: replicaDelayMs,
    expiryMs: replicaExpiryMs,
  }
}
