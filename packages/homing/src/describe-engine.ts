/** The start of an engine actor: where it can be reached, or why it could not start. */

import { type ActorRef, ActorTerminatedError, type Terminated } from '@homing/actor'
import type { EngineDescription, EngineMessage } from '@homing/engine'

const ENGINE_START_MS_MAX = 30_000

/**
 * Resolves when the engine serves. Rejects with what made it fail (a taken port, a tokenizer that cannot be
 * loaded), or with what the ask says when it is merely late. `ended`: as the system was asked when it was
 * spawned.
 */
export async function describeEngine(
  ref: ActorRef<EngineMessage>,
  ended: Promise<Terminated>,
): Promise<EngineDescription> {
  try {
    return await ref.ask({ type: 'describe' }, { timeout: ENGINE_START_MS_MAX })
  } catch (thrown) {
    // The missing answer is a consequence; the actor's end has the cause.
    if (thrown instanceof ActorTerminatedError) throw (await ended).error ?? thrown
    throw thrown
  }
}
