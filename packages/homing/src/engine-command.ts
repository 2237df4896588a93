/** `homing engine`: one simulated engine as a process: OpenAI HTTP, KV events, replay. */

import { createActorSystem } from '@homing/actor'
import { systemClock } from '@homing/base'
import {
  asksForHelp,
  type Command,
  faultOfTcpServer,
  foreignEngineOptions,
  parseSettings,
  renderHelp,
} from '@homing/config'
import { ENGINE_OPTIONS, engine } from '@homing/engine'
import { registerWorker } from '@homing/publisher'
import type { CommandEntry } from './command-entry.ts'
import { describeEngine } from './describe-engine.ts'
import { errorLine } from './error-line.ts'
import { untilStopped } from './until-stopped.ts'

const ENGINE_STOP_MS_MAX = 5000

/** `homing engine`. */
export const engineCommand: Command<typeof ENGINE_OPTIONS> = {
  name: 'engine',
  summary: 'Runs one simulated engine: OpenAI HTTP, KV events and replay, timed like a GPU, without one.',
  settings: ENGINE_OPTIONS,
  examples: [
    { does: 'An engine on port 8001, events on 5557, replay on 6557:', line: 'homing engine' },
    {
      does: 'A second one, with two ranks and a small cache, ten times as fast:',
      line: 'homing engine --port 8002 --events-port 5567 --replay-port 6567 --data-parallel-size 2 --blocks 500 --speed 10',
    },
  ],
  rules: [({ settings: { requestPlane }, isGiven }) => faultOfTcpServer(requestPlane, isGiven)],
  foreign: foreignEngineOptions,
}

export const engineCommandEntry: CommandEntry = {
  summary: engineCommand.summary,

  async run(argv) {
    if (asksForHelp(engineCommand, argv)) {
      console.log(renderHelp(engineCommand))
      return 0
    }
    const { settings, warnings } = parseSettings(engineCommand, argv, process.env)
    for (const warning of warnings) console.error(`homing: ${warning}`)

    const stopped = untilStopped(systemClock, { detach: false })
    const system = await createActorSystem({ name: 'engine', logLevel: 'error' })
    try {
      const ref = system.spawn(engine, { name: 'engine', args: settings })
      const ended = system.whenTerminated(ref)
      const { url, model, requests, ranks } = await describeEngine(ref, ended)
      console.log(`engine ready on ${url} (pid ${process.pid})`)
      for (const { rank, events, replay } of ranks) {
        console.log(
          `model ${model}, rank ${rank}: events ${events}, ${replay === undefined ? 'no replay' : `replay ${replay}`}`,
        )
      }
      if (requests !== undefined) console.log(`requests ${requests}`)
      const registered =
        settings.register === ''
          ? undefined
          : registerWorker({
              url: requests === undefined ? url : withDoor(url, requests),
              nats: settings.nats,
              namespace: settings.register,
              // The engine itself says nothing of its role, as vLLM.
              modelType: settings.role === 'both' ? undefined : settings.role,
              serve: settings.requestPlane === 'nats' ? { engine: url } : undefined,
            })
      const failure = await Promise.race([
        stopped.then(() => undefined),
        ended.then(({ error }) =>
          error === undefined ? 'homing: the engine was killed (POST /admin/kill)' : errorLine(error),
        ),
      ])
      await registered?.close()
      if (failure === undefined) return 0
      console.error(failure)
      return 1
    } finally {
      await system.shutdown({ deadline: ENGINE_STOP_MS_MAX })
    }
  },
}

/** The URL that routers are told: with the place where the engine takes their connections. */
function withDoor(url: string, requests: string): string {
  const told = new URL(url)
  told.searchParams.set('requests', requests)
  return told.href
}
