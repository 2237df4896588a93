/** A running router as a value: for the command line, for tests, and for programs that embed it. */

import { type ActorSystem, createActorSystem } from '@homing/actor'
import { seededRandom, systemClock, systemRandom } from '@homing/clock'
import type { RouterSettings } from '@homing/config'
import type { Fleet } from '@homing/directory'
import { fromErrorRecord } from '@homing/errors'
import { guardian } from '@homing/guardian'
import { prepareCheckpointDirectory } from '@homing/listener'
import { PromptTokenizer } from '@homing/tokenization'
import { readGivenTokenizers } from '@homing/tokenizer'
import { dialledHost } from './dialled-host.ts'
import { STOP_MS_MAX, type StopReport, serviceStop } from './stop-service.ts'
import { parseWorkers } from './worker-specs.ts'

export interface RunningRouter {
  /** 'http://host:port', with a host that can be dialled. */
  readonly url: string
  readonly port: number
  readonly system: ActorSystem
  /** What was found at the start, before the ready line; `GET /workers` has it as it is now. */
  readonly fleet: Fleet
  /** Resolves with the reason when the router cannot go on by itself; pending while it serves. */
  readonly whenFailed: Promise<string>
  /** Takes no more requests, lets open ones end for `graceMs`, stops every actor and thread. Idempotent. */
  stop(graceMs: number): Promise<StopReport>
}

const READY_MS_MAX = 60_000

/**
 * Starts a router and resolves when it serves: it listens, and each worker was probed once. Rejects with
 * ListenError when the port cannot be had, InvalidWorkerError for a worker that is not a usable URL or is
 * given twice, and TokenizerLoadError for a directory of `tokenizers` that cannot be used.
 */
export async function startRouter(settings: RouterSettings): Promise<RunningRouter> {
  const specs = parseWorkers(settings.workers)
  // At the first request it would be too late: every prompt would silently be asked of an engine.
  const directories = readGivenTokenizers(settings.tokenizers).values()
  for (const directory of directories) await PromptTokenizer.load(directory)
  const { checkpointDirectory } = settings
  if (checkpointDirectory !== undefined)
    await prepareCheckpointDirectory(checkpointDirectory, systemClock.wallMs())
  const system = await createActorSystem({
    name: 'homing',
    pools: { events: { count: settings.eventThreads } },
    random: settings.seed === undefined ? systemRandom : seededRandom(settings.seed),
    logLevel: settings.logLevel,
  })
  try {
    const ref = system.spawn(guardian, {
      name: 'guardian',
      args: { ...settings, specs },
      shutdown: STOP_MS_MAX,
    })
    const ready = await ref.ask({ type: 'whenReady' }, { timeout: READY_MS_MAX })
    if ('code' in ready) throw fromErrorRecord(ready)

    return {
      url: `http://${dialledHost(ready.host)}:${ready.port}`,
      port: ready.port,
      system,
      fleet: ready.fleet,
      whenFailed: system.whenTerminated(ref).then(({ error }) => error?.message ?? 'the guardian has ended'),
      stop: serviceStop(system, graceMs =>
        ref.ask({ type: 'drain', graceMs }, { timeout: graceMs + STOP_MS_MAX }),
      ),
    }
  } catch (thrown) {
    await system.shutdown({ deadline: STOP_MS_MAX })
    throw thrown
  }
}
