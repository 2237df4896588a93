/**
 * Gateway peers: what gateways on threads of their own tell each other, so that it does not matter which of
 * them takes a connection.
 *
 *   response passed through here ──tell──▶ all others
 *   id that is not known here ──ask──▶ all others ──▶ the first that knows it
 *   worker broke over a body ──tell──▶ all others
 *
 * A gateway knows a response before its client does. So a client that comes back through another gateway,
 * sooner than the message, is found by the question. What was told lasts when the gateway that told it ends.
 *
 * Fails  a gateway that does not answer within PEER_MS_MAX, or has just ended, counts as one that does not
 *        know the response; a message that finds its mailbox full is lost, and the question finds it.
 */

import type { ActorRef } from '@homing/actor'
import type { PromptWord } from './deadly-prompts.ts'
import type { PeerMessage } from './messages.ts'
import type { Held } from './response-holders.ts'

const PEER_MS_MAX = 1000

export class GatewayPeers {
  readonly #others: readonly ActorRef<PeerMessage>[]

  constructor(others: readonly ActorRef<PeerMessage>[]) {
    this.#others = others
  }

  tellPrompt(word: PromptWord): void {
    for (const other of this.#others) other.tell(word)
  }

  tellHeld(id: string, held: Held): void {
    for (const other of this.#others) other.tell({ type: 'responseHeld', id, held })
  }

  /** Undefined: none of them knows it. Never rejects. */
  async heldOf(id: string): Promise<Held | undefined> {
    if (this.#others.length === 0) return undefined
    const ask = async (other: ActorRef<PeerMessage>): Promise<Held> => {
      const held = await other.ask({ type: 'heldOf', id }, { timeout: PEER_MS_MAX })
      if (held === undefined) throw new Error('not known')
      return held
    }
    return Promise.any(this.#others.map(ask)).catch(() => undefined)
  }
}
