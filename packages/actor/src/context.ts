/**
 * Context: what a setup is given. It belongs to one instance: after a restart or the end of the actor
 * it does nothing, except that `spawn` throws ActorTerminatedError.
 *
 * Methods come from getters that bind, so that `setup({ self, spawn }, …)` works and an idle actor
 * carries no closures.
 */

import type { Clock, Random } from '@homing/clock'
import type { Log } from '@homing/log'
import type { Cell } from './cell.ts'
import { toMs } from './durations.ts'
import { ActorTerminatedError } from './errors.ts'
import type { LazySet } from './lazy-set.ts'
import { asAnyRef } from './refs.ts'
import type { Runtime } from './runtime.ts'
import type { ActorContext, ActorRef, Message } from './types.ts'

type Public = ActorContext<Message>

/** What a system and a context have in common, for what is built on both. */
export const spawner: unique symbol = Symbol('homing.spawner')

export interface Spawner {
  readonly runtime: Runtime
  readonly spawn: Public['spawn']
  /** Stops a child. */
  readonly stop: (ref: ActorRef<never>) => void
  /** Called when the parent's instance ends; undefined: the parent is a system. */
  readonly ends: LazySet<() => void> | undefined
}

export class Context implements ActorContext<Message> {
  readonly #cell: Cell
  readonly #generation: number
  #log: Log | undefined = undefined

  constructor(cell: Cell, generation: number) {
    this.#cell = cell
    this.#generation = generation
  }

  get [spawner](): Spawner {
    const { runtime, instanceEnds } = this.#cell
    return { runtime, spawn: this.spawn, stop: this.stop, ends: instanceEnds }
  }

  get self(): ActorRef<Message> {
    return this.#cell.ref
  }

  get name(): string {
    return this.#cell.name
  }

  get thread(): string {
    return this.#cell.runtime.thread
  }

  get clock(): Clock {
    return this.#cell.runtime.clock
  }

  get random(): Random {
    return this.#cell.runtime.random
  }

  get log(): Log {
    this.#log ??= this.#cell.runtime.log.child({ actor: this.#cell.name })
    return this.#log
  }

  get use(): Public['use'] {
    return capability => this.#cell.runtime.use(capability)
  }

  get spawn(): Public['spawn'] {
    return (definition, options) => {
      if (!this.#isCurrent) throw new ActorTerminatedError(this.#cell.name, `spawn ${options.name}`)
      return this.#cell.runtime.spawn(this.#cell, definition, options)
    }
  }

  get stop(): Public['stop'] {
    return ref => {
      if (!this.#isCurrent) return
      const cell = this.#cell
      if (ref === undefined || ref.key === cell.ref.key) cell.requestOwnStop()
      else cell.stopChild(asAnyRef(ref).id)
    }
  }

  get watch(): Public['watch'] {
    return ref => {
      if (this.#isCurrent) this.#cell.watch(asAnyRef(ref))
    }
  }

  get unwatch(): Public['unwatch'] {
    return ref => {
      if (this.#isCurrent) this.#cell.unwatch(asAnyRef(ref))
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

  get stash(): Public['stash'] {
    return message => {
      if (this.#isCurrent) this.#cell.stash(message)
      else this.#cell.lose(message)
    }
  }

  get unstashAll(): Public['unstashAll'] {
    return () => (this.#isCurrent ? this.#cell.unstashAll() : 0)
  }

  get pipe(): Public['pipe'] {
    return (promise, onFulfilled, onRejected) => {
      const take = (message: () => Message): void => {
        if (!this.#isCurrent) return
        try {
          this.#cell.enqueueForced(message())
        } catch (error) {
          this.#cell.fail(error, undefined)
        }
      }
      promise.then(
        value => take(() => onFulfilled(value)),
        (error: unknown) => take(() => onRejected(error)),
      )
    }
  }

  get #isCurrent(): boolean {
    return this.#cell.generation === this.#generation && this.#cell.isAccepting
  }
}
