/**
 * `homing router` and `homing picker`: settings, actors, the ready line, and an orderly end. A picker is a
 * router with other defaults, whose answers pass elsewhere.
 *
 * Standard output: the ready line, then what was found or what to try. Logs go to standard error.
 */

import { createLog, type Log, systemClock } from '@homing/base'
import {
  asksForHelp,
  namesWorkers,
  parseSettings,
  pickerCommand,
  type RouterSettings,
  renderHelp,
  routerCommand,
  type SettingSource,
  SettingsError,
} from '@homing/config'
import type { CommandEntry } from './command-entry.ts'
import { dialledHost } from './dialled-host.ts'
import { placementLine } from './placement-line.ts'
import { checkPorts } from './port-check.ts'
import { type RunningRouter, serveRouter } from './start-router.ts'
import { untilStopped } from './until-stopped.ts'
import { warmsUp, warmUp } from './warm-up.ts'
import { whatToTry } from './what-to-try.ts'
import { tokenizerLines, workerLines } from './worker-lines.ts'
import { faultsOfWorkers } from './worker-specs.ts'

export const routerCommandEntry = entryOf(routerCommand)
export const pickerCommandEntry = entryOf(pickerCommand)

function entryOf(command: typeof routerCommand): CommandEntry {
  return { summary: command.summary, run: argv => run(command, argv) }
}

async function run(command: typeof routerCommand, argv: readonly string[]): Promise<number> {
  if (asksForHelp(command, argv)) {
    console.log(renderHelp(command))
    return 0
  }
  const parsed = parseSettings(command, argv, process.env, {
    listChecks: { workers: faultsOfWorkers },
  })
  const { warnings, sources } = parsed
  const log = createLog(parsed.settings.logLevel, {}, parsed.settings.logFormat)
  for (const warning of warnings) log.warn({}, warning)
  const settings = await withUsableClasses(parsed.settings, sources.policyClassFile, log)

  // Listens for signals from the first moment: one that arrives while starting must end the start.
  const stopped = untilStopped(systemClock, settings)
  // A demo fleet takes seconds to start, and more to stop.
  const isDemo = !namesWorkers(settings)
  if (isDemo) await checkPorts(settings)
  const { demoEngines, demoSpeed, demoDisagg, logLevel, logFormat } = settings
  const fleet = isDemo
    ? await (await import('./demo-fleet.ts')).serveDemoFleet({
        ...{ demoEngines, demoSpeed, demoDisagg },
        ...{ logLevel, logFormat },
      })
    : undefined
  try {
    const router = await serveRouter({ ...settings, workers: fleet?.workers ?? settings.workers })
    const { url, adminUrl, metricsUrl } = router
    const operators = adminUrl === url ? '' : `\nroutes for operators on ${adminUrl}`
    const metrics = metricsUrl === undefined ? '' : `\nmetrics and health on ${metricsUrl}/metrics`
    const asked = router.picker === undefined ? '' : `\n${pickerLine(router.picker, settings)}`
    console.log(`${command.name} ready on ${url} (pid ${process.pid})${operators}${metrics}${asked}`)
    const placement = placementLine(settings, sources)
    if (settings.demoLoad) fleet?.startLoad(url)
    if (fleet !== undefined) console.log(`${placement}\n${whatToTry(router, fleet, settings)}`)
    else {
      const lines = [
        ...router.fleet.workers.flatMap(workerLines),
        ...tokenizerLines(router.tokenizers),
        placement,
      ]
      console.log(lines.join('\n'))
    }
    const warm = warmsUp(settings)
      ? warmUp(settings, router.inputs, { requests: settings.warmupRequests, log })
      : undefined

    const failed = router.whenFailed.then(reason => ({ reason, exitCode: 1 }))
    const ended = await Promise.race([stopped.then(reason => ({ reason, exitCode: 0 })), failed])
    // Not by the log: why it failed must be told at every log level.
    if (ended.exitCode !== 0) console.error(`homing: ${ended.reason}`)
    const { shutdownDelayMs: delayMs, shutdownTimeoutMs: graceMs } = settings
    log.info({ reason: ended.reason, ...(delayMs > 0 ? { delayMs } : {}), graceMs }, 'stopping')
    const [{ cutRequests, slowActors }] = await Promise.all([router.stop(graceMs), warm?.stop()])
    log.info({ cutRequests, slowActors: slowActors.join(', ') }, 'stopped')
    return ended.exitCode
  } finally {
    await fleet?.stop()
  }
}

/** Where Envoys ask, and where probes do. */
function pickerLine(
  { port, healthPort }: NonNullable<RunningRouter['picker']>,
  { host, pickerTls }: RouterSettings,
): string {
  const at = (one: number): string => `${dialledHost(host)}:${one}`
  const probes = healthPort === undefined ? '' : `, probes at grpc://${at(healthPort)}`
  const how =
    pickerTls === 'off'
      ? 'without TLS'
      : pickerTls === 'files'
        ? 'with the certificate of --tls-cert'
        : 'with a certificate that signs itself'
  return `Envoys ask at ${at(port)} ${how}${probes}`
}

/** A file that a variable of another program names stops nothing: without it, there is one class. */
async function withUsableClasses(
  settings: RouterSettings,
  { kind, name }: SettingSource,
  log: Pick<Log, 'warn'>,
): Promise<RouterSettings> {
  if (settings.policyClassFile === undefined || kind !== 'environment' || !name.startsWith('DYN_'))
    return settings
  const { loadPolicyClasses } = await import('./policy-class-file.ts')
  try {
    await loadPolicyClasses(settings.policyClassFile, 'fcfs', settings.trackPrefillTokens)
    return settings
  } catch (thrown) {
    if (!(thrown instanceof SettingsError)) throw thrown
    log.warn({}, `${name} is ignored: ${thrown.faults.join('; ')}`)
    return { ...settings, policyClassFile: undefined }
  }
}
