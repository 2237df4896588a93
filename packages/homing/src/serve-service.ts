/** Starts a service actor in this process, alone in a system of its own, as a running service. */

import { type ActorRef, type ActorSystem, type ActorSystemOptions, createActorSystem } from '@homing/actor'
import { createLog, type ErrorRecord, fromErrorRecord, type LogFormat, type LogLevel } from '@homing/base'
import type { HttpAddress, ServiceMessage } from '@homing/http'
import { dialledHost } from './dialled-host.ts'
import { requestsWithinFiles } from './open-files.ts'
import type { RunningService } from './running-service.ts'
import { STOP_MS_MAX, serviceStop } from './stop-service.ts'

export interface ServiceStart<R extends HttpAddress> {
  /** Of the system: 'slots'. */
  readonly name: string
  /** Of the service in a sentence: 'the slot service'. */
  readonly called: string
  readonly settings: {
    readonly openRequestsMax: number
    readonly logLevel: LogLevel
    readonly logFormat: LogFormat
    readonly shutdownTimeoutMs: number
  }
  readonly pools?: NonNullable<ActorSystemOptions['pools']>
  /** Engines that are listened to, as far as they are known at the start. */
  readonly workers: number
  /** Longest time until it is ready. */
  readonly readyMsMax: number
  /** `openRequestsMax`: as many as there are files for. */
  readonly spawn: (system: ActorSystem, openRequestsMax: number) => ActorRef<ServiceMessage<R>>
}

/** Long enough for a service that asks nothing of others. */
export const READY_MS_MAX = 60_000

/** Rejects with what the actor could not start for; then nothing of it is left. */
export async function serveService<R extends HttpAddress>(
  start: ServiceStart<R>,
): Promise<RunningService & { readonly ready: R }> {
  const { settings, pools = {} } = start
  const system = await createActorSystem({
    name: start.name,
    pools,
    logLevel: settings.logLevel,
    logFormat: settings.logFormat,
    // As the router's (start-router.ts).
    warmSpare: false,
  })
  try {
    const needs = { openRequestsMax: settings.openRequestsMax, perRequest: 1, workers: start.workers }
    const openRequestsMax = requestsWithinFiles(needs, createLog(settings.logLevel, {}, settings.logFormat))
    const ref = start.spawn(system, openRequestsMax) as ActorRef<ServiceMessage<HttpAddress>>
    const ended = system.whenTerminated(ref)
    const outcome = await ref.ask({ type: 'whenReady' }, { timeout: start.readyMsMax })
    if ('code' in outcome) throw fromErrorRecord(outcome)
    const ready = outcome as Exclude<R, ErrorRecord>
    return {
      url: `http://${dialledHost(ready.host)}:${ready.port}`,
      port: ready.port,
      ready,
      system,
      whenFailed: ended.then(({ error }) => error?.message ?? `${start.called} has ended`),
      stop: serviceStop(system, settings.shutdownTimeoutMs, graceMs =>
        ref.ask({ type: 'drain', graceMs }, { timeout: graceMs + STOP_MS_MAX }),
      ),
    }
  } catch (thrown) {
    await system.shutdown({ deadline: STOP_MS_MAX })
    throw thrown
  }
}
