/**
 * Everything before the actors of a router, and their modules, which are most of what a router loads: its
 * threads start meanwhile.
 */

import process from 'node:process'
import { prepareDecisionLog } from '@homing/actors/decision-log'
import { faultOfTracing } from '@homing/actors/gateway'
import { guardian } from '@homing/actors/guardian'
import { prepareCheckpointDirectory } from '@homing/actors/listener'
import { prepareLearnedFile } from '@homing/actors/tracker'
import { createLog, type Log, systemClock } from '@homing/base'
import { natsServersOf, type RouterSettings, SettingsError, streamOf } from '@homing/config'
import { prepareAccessLog } from '@homing/http'
import { encoderPath } from '@homing/tokenization'
import { faultOfExtProc, resetStream } from '@homing/transport'
import { openBrokerAccess } from './broker-access.ts'
import { connectionsWithinFiles, requestsWithinFiles } from './open-files.ts'
import { checkPorts } from './port-check.ts'
import { readRouterInputs } from './router-inputs.ts'

/**
 * Rejects with the error of the first thing that the settings name and that cannot be used. `hasPorts`: the
 * router will listen at the ports of the settings.
 */
export async function prepareRouter(settings: RouterSettings, hasPorts = true) {
  const log = createLog(settings.logLevel, {}, settings.logFormat)
  const inputs = await readRouterInputs(settings)
  const fault = settings.pickerPort === undefined ? undefined : await faultOfExtProc()
  if (fault !== undefined) throw new SettingsError('router', [`--picker-port ${fault}`])
  await openBrokerAccess(settings, 'router', log)
  const stream = streamOf(settings)
  if (stream !== undefined && settings.resetStates) {
    const wasThere = await resetStream(natsServersOf(settings.natsServers), stream.namespace, systemClock)
    log.warn(
      { namespace: stream.namespace, wasThere },
      'the stream of KV events was emptied (--router-reset-states): routers that start later do not learn from it what was before',
    )
  }
  const port = hasPorts ? await checkPorts(settings) : settings.port
  const { checkpointDirectory, decisionLogFile, accessLog, learnedFile } = settings
  if (decisionLogFile !== undefined) await prepareDecisionLog(decisionLogFile)
  if (accessLog !== undefined) await prepareAccessLog(accessLog)
  const otlpEndpoint = await tracedTo(settings, log)
  if (learnedFile !== undefined) await prepareLearnedFile(learnedFile)
  if (checkpointDirectory !== undefined)
    await prepareCheckpointDirectory(
      checkpointDirectory,
      systemClock.wallMs(),
      inputs.specs.map(({ id }) => id),
    )
  const workers = inputs.specs.length + (inputs.fileWorkers?.urls.length ?? 0)
  const needs = { openRequestsMax: settings.openRequestsMax, perRequest: 2, workers }
  const openRequestsMax = requestsWithinFiles(needs, log)
  const connectionsMax = connectionsWithinFiles(settings.connectionsMax, { ...needs, openRequestsMax }, log)
  return {
    guardian,
    args: {
      settings: {
        ...settings,
        otlpEndpoint,
        // Threads that share a port have to know it.
        port: settings.gatewayThreads > 1 ? port : settings.port,
        openRequestsMax,
        connectionsMax,
      },
      inputs,
    },
    /** The encoder of each directory of `tokenizers`. */
    tokenizers: new Map(
      [...inputs.loadedTokenizers].map(([directory, loaded]) => [directory, encoderPath(loaded)]),
    ),
  }
}

/**
 * Where spans go. Clusters put the variable of all programs into every process: where only that names a
 * collector and the packages are not there, the router starts without traces.
 */
async function tracedTo({ otlpEndpoint }: RouterSettings, log: Log): Promise<string | undefined> {
  const fault = otlpEndpoint === undefined ? undefined : await faultOfTracing()
  if (fault === undefined) return otlpEndpoint
  if (process.env['OTEL_EXPORTER_OTLP_ENDPOINT']?.trim() !== otlpEndpoint)
    throw new SettingsError('router', [`--otlp-endpoint ${fault}`])
  log.warn({}, `no traces are made: OTEL_EXPORTER_OTLP_ENDPOINT ${fault}`)
  return undefined
}
