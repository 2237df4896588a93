/**
 * Context: the argument of a setup. It belongs to one instance: after a restart or the end of the actor
 * it does nothing, except that `spawn` throws ActorTerminatedError.
 *
 * Methods come from getters that bind, so that `setup({ self, spawn }, …)` works and an idle actor
 * carries no closures.
 */

import type { Clock, Log, Random } from '@homing/base'
import { drainMsOf } from '../contract/settings.ts'
import type { ActorContext, ActorRef } from '../contract/types.ts'
import { toMs } from '../values/durations.ts'
import { ActorTerminatedError } from '../values/errors.ts'
import type { Message } from '../values/message.ts'
import type { LocalParent } from './kin.ts'
import { asRef, type Ref } from './ref.ts'
import type { TurnTaker } from './turn-taker.ts'

type Public = ActorContext<Message>

/** The cell of the actor; a Cell is one. */
interface ContextCell extends TurnTaker, LocalParent {
  readonly ref: Ref
  requestOwnStop(drainMs?: number | 'shutdown'): void
  stopChild(id: number, drainMs?: number | 'shutdown'): void
}

export class Context implements ActorContext<Message> {
  readonly #cell: ContextCell
  readonly #generation: number
  #log: Log | undefined = undefined

  constructor(cell: ContextCell, generation: number) {
    this.#cell = cell
    this.#generation = generation
  }

  get self(): ActorRef<Message> {
    return this.#cell.ref
  }

  get name(): string {
    return this.#cell.name
  }

  get thread(): string {
    return this.#cell.host.thread
  }

  get clock(): Clock {
    return this.#cell.host.clock
  }

  get random(): Random {
    return this.#cell.host.random
  }

  get log(): Log {
    this.#log ??= this.#cell.host.log.child({ actor: this.#cell.name })
    return this.#log
  }

  get use(): Public['use'] {
    return capability => this.#cell.host.use(capability)
  }

  get spawn(): Public['spawn'] {
    return (definition, options) => {
      if (!this.#isCurrent) throw new ActorTerminatedError(this.#cell.name, `spawn ${options?.name}`)
      return this.#cell.host.spawn(this.#cell, definition, options)
    }
  }

  get stop(): Public['stop'] {
    return (ref, options) => {
      const drainMs = drainMsOf(options)
      if (!this.#isCurrent) return
      const cell = this.#cell
      if (ref === undefined || ref.key === cell.ref.key) cell.requestOwnStop(drainMs)
      else cell.stopChild(asRef(ref).id, drainMs)
    }
  }

  get watch(): Public['watch'] {
    return ref => {
      if (this.#isCurrent) this.#cell.watch(asRef(ref))
    }
  }

  get unwatch(): Public['unwatch'] {
    return ref => {
      if (this.#isCurrent) this.#cell.unwatch(asRef(ref))
    }
  }

  get schedule(): Public['schedule'] {
    return (delay, message) => {
      const delayMs = toMs(delay)
      return this.#isCurrent ? this.#cell.schedule(delayMs, message) : { cancel() {} }
    }
  }

  get scheduleEvery(): Public['scheduleEvery'] {
    return (interval, message) => {
      const intervalMs = toMs(interval)
      if (intervalMs <= 0) throw new RangeError('cannot schedule a message every 0 ms: use an interval > 0')
      return this.#isCurrent ? this.#cell.scheduleEvery(intervalMs, message) : { cancel() {} }
    }
  }

  get pipe(): Public['pipe'] {
    return (promise, onFulfilled, onRejected) => {
      if (!this.#isCurrent) {
        // Nobody takes the outcome, but a rejection is not to go unhandled.
        promise.then(
          () => {},
          () => {},
        )
        return
      }
      const pipe = this.#cell.pipeBegins()
      const take = (message: () => Message): void => {
        if (!this.#isCurrent) return
        try {
          this.#cell.enqueueForced(message())
        } catch (error) {
          this.#cell.fail(error, undefined)
        }
        if (this.#isCurrent) this.#cell.pipeEnds(pipe)
      }
      promise.then(
        value => take(() => onFulfilled(value)),
        (error: unknown) => take(() => onRejected(error)),
      )
    }
  }

  get #isCurrent(): boolean {
    return this.#cell.generation === this.#generation && this.#cell.isAlive
  }
}
