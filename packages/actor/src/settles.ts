/**
 * Settles: asks whether an actor has handled what it was told before. Each is answered when the arms of a reentrant
 * actor that were in flight as it came have ended; those that begin later do not keep it waiting.
 *
 *   wave   the arms that began between two such asks; an ask waits for its wave and all before
 */

import type { OpenAsk } from './asks.ts'

/** An ask of this type is answered by every actor, once what was sent before it has been handled. */
export const SETTLE = 'homing.settle'

/** The arms in flight of one wave, and the ask that ended it. */
export interface Wave {
  armCount: number
  ask: OpenAsk | undefined
}

export class Settles {
  /** In order; the last has no ask yet. */
  #waves: Wave[] = [{ armCount: 0, ask: undefined }]

  /** An arm that takes its time has begun. */
  begin(): Wave {
    const wave = this.#waves.at(-1)!
    wave.armCount++
    return wave
  }

  end(wave: Wave): void {
    wave.armCount--
    this.#answer()
  }

  add(ask: OpenAsk): void {
    const last = this.#waves.at(-1)!
    const previous = this.#waves.at(-2)
    if (last.armCount === 0 && previous?.ask?.isSettled === true) {
      // Nobody waits for that one any more.
      previous.ask = ask
      return
    }
    last.ask = ask
    this.#waves.push({ armCount: 0, ask: undefined })
    this.#answer()
  }

  #answer(): void {
    for (
      let first = this.#waves[0]!;
      first.ask !== undefined && first.armCount === 0;
      first = this.#waves[0]!
    ) {
      this.#waves.shift()
      first.ask.answer(0)
    }
  }
}
