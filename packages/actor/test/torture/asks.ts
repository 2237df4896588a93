/** Asks of a torture run: each settles in time, with the right answer or for a reason that is expected. */

import { CodedError } from '@homing/base'
import { PUMP_MS, pause } from './waits.ts'

export class Asks {
  /** By kind and outcome. */
  readonly outcomes: Record<string, number> = {}
  /** The latest that one settled after its deadline. */
  lateMsMax = 0
  readonly #violate: (what: string) => void
  #openCount = 0

  constructor(violate: (what: string) => void) {
    this.#violate = violate
  }

  get openCount(): number {
    return this.#openCount
  }

  /** `answer` undefined: none comes, and the ask runs into its deadline. */
  async ask(
    kind: string,
    timeoutMs: number,
    ask: (timeoutMs: number) => Promise<number>,
    answer: number | undefined,
  ): Promise<void> {
    const dueMs = performance.now() + timeoutMs
    this.#openCount++
    let outcome: string
    try {
      const value = await ask(timeoutMs)
      outcome = 'answered'
      if (value !== answer) this.#violate(`an ask (${kind}) was answered ${value}, not ${answer}`)
    } catch (error) {
      outcome = error instanceof CodedError ? error.code : String(error)
      const isExpected =
        ['HOMING_ACTOR_THREAD_DOWN', 'HOMING_ACTOR_ASK_REFUSED', 'HOMING_ACTOR_TERMINATED'].includes(
          outcome,
        ) ||
        (outcome === 'HOMING_ACTOR_ASK_TIMEOUT' && answer === undefined) ||
        // The handler failed while it had this ask, in its restart.
        outcome === 'HOMING_ACTOR_FAILED'
      if (!isExpected) this.#violate(`an ask (${kind}) was rejected with ${outcome}`)
      // Not again at once while a thread is away.
      await pause(PUMP_MS)
    }
    this.#openCount--
    this.lateMsMax = Math.max(this.lateMsMax, performance.now() - dueMs)
    const counted = `${kind} ${outcome}`
    this.outcomes[counted] = (this.outcomes[counted] ?? 0) + 1
  }
}
