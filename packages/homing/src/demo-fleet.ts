/**
 * The demo fleet: simulated engines on threads beside the router's, with real HTTP and real ZeroMQ. There are
 * as many threads as cores at most: more would only take longer to start.
 */

import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { createActorSystem } from '@homing/actor'
import { completeSettings, type GivenSettings, type RouterSettings, routerCommand } from '@homing/config'
import { type EngineRole, engine } from '@homing/engine'
import { demoLoad } from './demo-load.ts'
import { describeEngine } from './describe-engine.ts'

export interface DemoFleet {
  /** Base URLs, as `--worker` takes them. */
  readonly workers: readonly string[]
  /** So many of them compute prompts for the others; 0: each takes whole requests. */
  readonly prefillEngines: number
  readonly model: string
  readonly blockSizeTokens: number
  /** Begins the load of `--demo-load`, which goes to the router at `origin` until the fleet stops. */
  startLoad(origin: string): void
  stop(): Promise<void>
}

const MODEL = 'homing-demo'
/** A tokenizer of about 1,500 ids, made by packages/tokenization/scripts/make-tokenizer.ts. */
const TOKENIZER_DIRECTORY = fileURLToPath(
  new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')),
)
/** Of a hand-over: 128 KiB per token over 10 Gbit/s. */
const TRANSFER = { transferMs: 2, transferMsPerToken: 0.1 } as const
const ENGINE_STOP_MS_MAX = 5000

/** What a program can set of a demo fleet, with the defaults of the command line. */
export type GivenDemoSettings = GivenSettings<
  Pick<RouterSettings, 'demoEngines' | 'demoSpeed' | 'demoDisagg' | 'logLevel' | 'logFormat'>
>

const OF_DEMO: readonly string[] = [
  'demoEngines',
  'demoSpeed',
  'demoDisagg',
  'logLevel',
  'logFormat',
] satisfies (keyof GivenDemoSettings)[]
const OF_ROUTERS_ALONE = routerCommand.settings.map(({ key }) => key).filter(key => !OF_DEMO.includes(key))

/** See `startDemoFleet`. */
export async function serveDemoFleet(given: GivenDemoSettings = {}): Promise<DemoFleet> {
  const settings = completeSettings(routerCommand, given, { without: OF_ROUTERS_ALONE })
  const prefillEngines = settings.demoDisagg ? Math.floor(settings.demoEngines / 2) : 0
  const roleOf = (number: number): EngineRole => {
    if (!settings.demoDisagg) return 'both'
    return number < prefillEngines ? 'prefill' : 'decode'
  }
  const threads = Math.min(settings.demoEngines, availableParallelism())
  const system = await createActorSystem({
    name: 'demo-fleet',
    pools: { engines: { count: threads, preload: [engine.moduleUrl] } },
    // An engine that is lost is one of the things that a router has to do with.
    warmSpare: false,
    logLevel: settings.logLevel,
    logFormat: settings.logFormat,
  })
  try {
    const refs = Array.from({ length: settings.demoEngines }, (_, number) =>
      system.spawn(engine, {
        name: `engine-${number}`,
        thread: `engines-${number % threads}`,
        args: {
          port: 0,
          eventsPort: 0,
          replayPort: 0,
          model: MODEL,
          tokenizer: TOKENIZER_DIRECTORY,
          speed: settings.demoSpeed,
          role: roleOf(number),
          ...TRANSFER,
        },
      }),
    )
    const engines = await Promise.all(refs.map(ref => describeEngine(ref, system.whenTerminated(ref))))
    return {
      // vLLM does not say which part an engine takes, so the URLs do.
      workers: engines.map(({ url }, number) =>
        settings.demoDisagg ? `${url}?role=${roleOf(number)}` : url,
      ),
      prefillEngines,
      model: MODEL,
      blockSizeTokens: engines[0]!.blockSizeTokens,
      startLoad(origin) {
        const args = { origin, model: MODEL }
        // Nobody depends on it: it may fail as often as it likes.
        system.spawn(demoLoad, { name: 'load', thread: 'dedicated', args })
      },
      stop: async () => void (await system.shutdown({ deadline: ENGINE_STOP_MS_MAX })),
    }
  } catch (thrown) {
    await system.shutdown({ deadline: ENGINE_STOP_MS_MAX })
    throw thrown
  }
}
