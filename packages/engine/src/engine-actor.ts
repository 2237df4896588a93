/**
 * Engine actor: one simulated engine on whatever thread it is placed.
 *
 * In     `describe`, `state`, `faults`, `restart`: the doors of /admin, for tests that hold the ref.
 * Out    nothing: an engine talks HTTP and ZeroMQ.
 * Owns   the engine: its sockets, caches and requests. Stopping the actor closes them all.
 * Fails  a port that is taken or settings that cannot work fail the start. `POST /admin/kill` stops the
 *        actor, which its watchers see; a supervisor that restarts it gives a new epoch on the ports of the
 *        settings.
 */

import { type ActorContext, type Behavior, defineActor, type Reply, signal } from '@homing/actor'
import { transportCapability } from '@homing/transport'
import { RefusedRequest } from './completion-request.ts'
import { Engine, type EngineDescription, type EngineState } from './engine.ts'
import type { EngineSettings } from './engine-settings.ts'
import { loadEngineTokenizer } from './load-engine-tokenizer.ts'

export type EngineMessage =
  /** Where the engine can be reached. */
  | { readonly type: 'describe'; readonly reply: Reply<EngineDescription> }
  /** What it published, holds, runs and answered; `hasBlocks` adds every cached block. */
  | { readonly type: 'state'; readonly hasBlocks?: boolean; readonly reply: Reply<EngineState> }
  /** Sets faults as a body of /admin/faults does; answers why it cannot, or undefined. */
  | {
      readonly type: 'faults'
      readonly body: Readonly<Record<string, unknown>>
      readonly reply: Reply<string | undefined>
    }
  /** A new life on the same ports; answers when it can be used. */
  | { readonly type: 'restart'; readonly downMs?: number; readonly reply: Reply<undefined> }
  /** From /admin/kill. */
  | { readonly type: 'killed' }

export const engine = defineActor(
  import.meta.url,
  'engine',
)<EngineMessage, Partial<EngineSettings>>({
  async setup(context, settings) {
    const running = await Engine.start({
      settings,
      transport: context.use(transportCapability),
      tokenizer: await loadEngineTokenizer(settings.tokenizer),
      clock: context.clock,
      random: context.random,
      log: context.log,
      onKill: () => void context.self.tell({ type: 'killed' }),
    })
    return behaviorOf(context, running)
  },
})

function behaviorOf(context: ActorContext<EngineMessage>, running: Engine): Behavior<EngineMessage> {
  return {
    describe({ reply }) {
      reply(running.describe())
    },
    state({ hasBlocks, reply }) {
      reply(running.state({ hasBlocks: hasBlocks ?? false }))
    },
    faults({ body, reply }) {
      try {
        running.setFaults(body)
        reply(undefined)
      } catch (error) {
        if (!(error instanceof RefusedRequest)) throw error
        reply(error.message)
      }
    },
    async restart({ downMs, reply }) {
      await running.restart(downMs ?? 0)
      reply(undefined)
    },
    killed() {
      context.stop()
    },
    async [signal](event) {
      if (event.type === 'stopped' || event.type === 'beforeRestart') await running.close()
    },
  }
}
