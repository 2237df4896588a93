/** A running service of short requests, and how its process lives with it until it is stopped. */

import type { ActorSystem } from '@homing/actor'
import { createLog, type LogFormat, type LogLevel, systemClock } from '@homing/base'
import type { StopReport } from './stop-service.ts'
import { untilStopped } from './until-stopped.ts'

export interface RunningService {
  /** 'http://host:port', with a host that can be dialled. */
  readonly url: string
  readonly port: number
  readonly system: ActorSystem
  /** Resolves with the reason when the service cannot go on by itself; pending while it serves. */
  readonly whenFailed: Promise<string>
  /**
   * Takes no more requests, lets open ones end for `graceMs` (default: the setting `shutdownTimeoutMs`),
   * stops every actor and thread. Idempotent.
   */
  stop(graceMs?: number): Promise<StopReport>
}

export interface ServiceProcess<R extends RunningService> {
  readonly settings: {
    readonly detach: boolean
    readonly logLevel: LogLevel
    readonly logFormat: LogFormat
    readonly shutdownTimeoutMs: number
  }
  /** Of its settings. */
  readonly warnings: readonly string[]
  readonly start: () => Promise<R>
  /** Lines for standard output once it serves; the first is the ready line. */
  readonly lines: (running: R) => readonly string[]
}

/**
 * Starts the service, tells that it is ready, and serves until the process is to end. Answers the exit code:
 * 1 where the service has failed by itself.
 */
export async function runService<R extends RunningService>(process: ServiceProcess<R>): Promise<0 | 1> {
  const { settings, warnings, start, lines } = process
  const log = createLog(settings.logLevel, {}, settings.logFormat)
  for (const warning of warnings) log.warn({}, warning)
  // Listens for signals from the first moment: one that arrives while starting must end the start.
  const stopped = untilStopped(systemClock, settings)
  const running = await start()
  for (const line of lines(running)) console.log(line)

  const failed = running.whenFailed.then(reason => ({ reason, exitCode: 1 as const }))
  const ended = await Promise.race([stopped.then(reason => ({ reason, exitCode: 0 as const })), failed])
  // Not by the log: why it failed must be told at every log level.
  if (ended.exitCode !== 0) console.error(`homing: ${ended.reason}`)
  log.info({ reason: ended.reason, graceMs: settings.shutdownTimeoutMs }, 'stopping')
  const { cutRequests, slowActors } = await running.stop(settings.shutdownTimeoutMs)
  log.info({ cutRequests, slowActors: slowActors.join(', ') }, 'stopped')
  return ended.exitCode
}
