/** A running slot tracker as a value: for the command line, for tests, and for programs that embed it. */

import { createActorSystem } from '@homing/actor'
import { type SlotReplicas, slotService } from '@homing/actors/slot-service'
import { createLog, fromErrorRecord } from '@homing/base'
import { completeSettings, type GivenSettings, type SlotsSettings, slotsCommand } from '@homing/config'
import { dialledHost } from './dialled-host.ts'
import { requestsWithinFiles } from './open-files.ts'
import { checkPort } from './port-check.ts'
import type { RunningService } from './running-service.ts'
import { STOP_MS_MAX, serviceStop } from './stop-service.ts'

/**
 * What a program can set; what it leaves out has the default of the command line. See docs/configuration.md
 * for each.
 */
export type GivenSlotsSettings = Omit<GivenSettings<SlotsSettings>, 'detach'>

const READY_MS_MAX = 60_000

/** All settings of a slot tracker. Throws SettingsError for all that is wrong with them at once. */
export function slotsSettingsOf(given: GivenSlotsSettings): SlotsSettings {
  return completeSettings(slotsCommand, given, { without: ['detach'] })
}

/** Starts a slot tracker in this process, with settings that have no faults; see `startSlots`. */
export async function serveSlots(settings: SlotsSettings): Promise<RunningService> {
  await checkPort(settings)
  const system = await createActorSystem({
    name: 'slots',
    logLevel: settings.logLevel,
    logFormat: settings.logFormat,
    // As the router's (start-router.ts).
    warmSpare: false,
  })
  try {
    const needs = { openRequestsMax: settings.openRequestsMax, perRequest: 1, workers: 0 }
    const openRequestsMax = requestsWithinFiles(needs, createLog(settings.logLevel, {}, settings.logFormat))
    const ref = system.spawn(slotService, {
      name: 'slot-service',
      args: {
        ...settings,
        openRequestsMax,
        replicas: replicasOf(settings),
        traceIdHeader: settings.traceIdHeader.toLowerCase(),
      },
      shutdown: STOP_MS_MAX,
    })
    const ended = system.whenTerminated(ref)
    const ready = await ref.ask({ type: 'whenReady' }, { timeout: READY_MS_MAX })
    if ('code' in ready) throw fromErrorRecord(ready)
    return {
      url: `http://${dialledHost(ready.host)}:${ready.port}`,
      port: ready.port,
      system,
      whenFailed: ended.then(({ error }) => error?.message ?? 'the slot service has ended'),
      stop: serviceStop(system, settings.shutdownTimeoutMs, graceMs =>
        ref.ask({ type: 'drain', graceMs }, { timeout: graceMs + STOP_MS_MAX }),
      ),
    }
  } catch (thrown) {
    await system.shutdown({ deadline: STOP_MS_MAX })
    throw thrown
  }
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
