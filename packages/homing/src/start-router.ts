/** A running router as a value: for the command line, for tests, and for programs that embed it. */

import { type ActorRef, type ActorSystem, createActorSystem, type Provided } from '@homing/actor'
import type { GatewayAddress } from '@homing/actors/gateway'
import type { GuardianMessage, RouterInputs } from '@homing/actors/guardian'
import { choicesOf, fromErrorRecord, systemClock, systemRandom } from '@homing/base'
import {
  completeSettings,
  type GivenSettings,
  namesWorkers,
  type RouterSettings,
  routerCommand,
  SettingsError,
} from '@homing/config'
import type { Fleet } from '@homing/fleet'
import type { HttpAddress } from '@homing/http'
import type { EncoderPath } from '@homing/tokenization'
import { dialledHost } from './dialled-host.ts'
import { STOP_MS_MAX, type StopReport, serviceStop } from './stop-service.ts'
import { faultsOfWorkers } from './worker-specs.ts'

export interface RunningRouter {
  /** 'http://host:port' or 'https://host:port', with a host that can be dialled. */
  readonly url: string
  readonly port: number
  /** Where the routes for operators are: `url`, unless they have a port of their own. */
  readonly adminUrl: string
  /** A further port, with metrics and health alone; undefined: there is none. */
  readonly metricsUrl: string | undefined
  /** Where Envoys ask; undefined: nowhere. */
  readonly picker: GatewayAddress['picker']
  readonly system: ActorSystem
  /** The findings at the start, before the ready line; `GET /workers` has the current ones. */
  readonly fleet: Fleet
  /** The encoder of each directory of `tokenizers`. */
  readonly tokenizers: ReadonlyMap<string, EncoderPath>
  /** Resolves with the reason when the router cannot go on by itself; pending while it serves. */
  readonly whenFailed: Promise<string>
  /**
   * Says that it is not ready for the setting `shutdownDelayMs`, if that is above 0. Then takes no more
   * requests, lets open ones end for `graceMs` (default: the setting `shutdownTimeoutMs`), stops every actor
   * and thread. Idempotent.
   */
  stop(graceMs?: number): Promise<StopReport>
}

/**
 * What a program can set; what it leaves out has the default of the command line. See docs/configuration.md
 * for each.
 */
export type GivenRouterSettings = Omit<GivenSettings<RouterSettings>, (typeof COMMAND_LINE_ONLY)[number]>

const READY_MS_MAX = 60_000
/** What an event thread is about to be given. */
const EVENT_MODULES = [
  import.meta.resolve('@homing/actors/indexer'),
  import.meta.resolve('@homing/actors/listener'),
]
/** What a thread of a gateway is about to be given. */
const GATEWAY_MODULES = [
  import.meta.resolve('@homing/actors/gateway'),
  import.meta.resolve('@homing/actors/tokenizer'),
]
export const COMMAND_LINE_ONLY = [
  ...(['demoEngines', 'demoSpeed', 'demoDisagg', 'demoLoad'] as const),
  ...(['detach', 'warmupRequests'] as const),
] as const

/**
 * All settings of a router, with the workers that it needs. `without`: those that have no effect. Throws
 * SettingsError for all that is wrong with them at once.
 */
export function routerSettingsOf(
  given: GivenSettings<RouterSettings>,
  without: readonly (keyof RouterSettings)[] = COMMAND_LINE_ONLY,
): RouterSettings {
  const settings = completeSettings(routerCommand, given, {
    listChecks: { workers: faultsOfWorkers },
    without,
  })
  if (!namesWorkers(settings)) {
    throw new SettingsError('router', [
      'workers: the list is empty; give the URLs of engines, or those of startDemoFleet()',
    ])
  }
  return settings
}

/** A running router, and what a program in the same process talks to. */
export interface ServedRouter extends RunningRouter {
  readonly guardian: ActorRef<GuardianMessage>
  /** What its settings name, as it was read. */
  readonly inputs: RouterInputs
}

/**
 * Starts a router in this process, with settings that have no faults; see `startRouter`. `inside`: the
 * capabilities that replace those of the main thread; the router listens through them, so no port is looked
 * at. Undefined: it listens at `port`.
 */
export async function serveRouter(
  settings: RouterSettings,
  inside?: readonly Provided[],
): Promise<ServedRouter> {
  const { gatewayThreads } = settings
  const starting = createActorSystem({
    name: 'homing',
    pools: {
      events: { count: settings.eventThreads, preload: EVENT_MODULES },
      // A gateway that is alone is on main.
      gateways: { count: gatewayThreads > 1 ? gatewayThreads : 0, preload: GATEWAY_MODULES },
    },
    provide: inside ?? [],
    random: settings.seed === undefined ? systemRandom : choicesOf(settings.seed),
    logLevel: settings.logLevel,
    logFormat: settings.logFormat,
    // It would hold 30 MB for a death that is rare, and save 0.2 s of what an event thread needs to catch up.
    warmSpare: false,
  })
  // Waited for below, where it is not too late to say so.
  starting.catch(() => {})
  try {
    // Loaded here: the threads start meanwhile.
    const { prepareRouter } = await import('./prepare-router.ts')
    const { guardian, args, tokenizers } = await prepareRouter(settings, inside === undefined)
    const system = await starting
    const ref = system.spawn(guardian, { name: 'guardian', args, shutdown: STOP_MS_MAX })
    const ready = await ref.ask({ type: 'whenReady' }, { timeout: READY_MS_MAX })
    if ('code' in ready) throw fromErrorRecord(ready)

    const scheme = settings.tlsCertificateFile === undefined ? 'http' : 'https'
    const urlOf = ({ host, port }: HttpAddress): string => `${scheme}://${dialledHost(host)}:${port}`
    return {
      guardian: ref,
      inputs: args.inputs,
      url: urlOf(ready),
      port: ready.port,
      adminUrl: urlOf(ready.admin ?? ready),
      metricsUrl: ready.metrics && urlOf(ready.metrics),
      picker: ready.picker,
      system,
      fleet: ready.fleet,
      tokenizers,
      whenFailed: system.whenTerminated(ref).then(({ error }) => error?.message ?? 'the guardian has ended'),
      stop: serviceStop(system, settings.shutdownTimeoutMs, async graceMs => {
        const { shutdownDelayMs } = settings
        if (shutdownDelayMs > 0) {
          ref.tell({ type: 'leave' })
          const { promise: isOver, resolve } = Promise.withResolvers<void>()
          const timer = systemClock.after(shutdownDelayMs, resolve)
          // A router that fails has nothing left to serve with.
          await Promise.race([isOver, system.whenTerminated(ref)])
          timer.cancel()
        }
        return ref.ask({ type: 'drain', graceMs }, { timeout: graceMs + STOP_MS_MAX })
      }),
    }
  } catch (thrown) {
    await starting.then(
      system => system.shutdown({ deadline: STOP_MS_MAX }),
      () => {},
    )
    throw thrown
  }
}
