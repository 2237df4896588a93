/**
 * WaitingAsks: asks of a key router whose member is away. Each waits until the members change, for its own deadline or
 * its abort, and is then asked again of whoever has the key, as long as no thread may have taken it.
 */

import type { Deadline } from './deadlines.ts'
import { toMs } from './durations.ts'
import {
  ActorTerminatedError,
  AskAbortedError,
  AskRefusedError,
  AskTimeoutError,
  ThreadDownError,
} from './errors.ts'
import type { Member } from './key-router-member.ts'
import type { Runtime } from './runtime.ts'
import type { AskOptions } from './types.ts'

/** Asks that wait in a router at once. */
const WAITING_ASKS_MAX = 4096

interface Waiting extends Deadline {
  resume(): void
}

/** An ask without its reply. */
interface Asked {
  readonly type: string
}

export class WaitingAsks {
  readonly #runtime: Runtime
  readonly #router: string
  readonly #pick: (message: Asked) => Member | undefined
  readonly #waiting = new Set<Waiting>()

  /** `pick` says who has the key of a message now. */
  constructor(runtime: Runtime, router: string, pick: (message: Asked) => Member | undefined) {
    this.#runtime = runtime
    this.#router = router
    this.#pick = pick
  }

  /** Asks when there is somebody to ask, as long as nobody has taken the ask; `failure` is that of an earlier try. */
  async askAgain(message: Asked, options: AskOptions, dueMs: number, failure: unknown): Promise<never> {
    let error = failure
    for (;;) {
      if (error !== undefined && !(error instanceof ThreadDownError && !error.mayBeTaken)) throw error
      const member = this.#pick(message)
      if (member === undefined) {
        throw new ActorTerminatedError(
          this.#router,
          `get an answer to '${message.type}' from router ${this.#router}`,
        )
      }
      if (member.state !== 'owner' || member.isDown) {
        await this.#wait(message, options, dueMs)
        error = undefined
        continue
      }
      const leftMs = dueMs - this.#runtime.clock.nowMs()
      if (leftMs <= 0) throw this.#late(message, options)
      try {
        return await member.ref.ask(message, { ...options, timeout: leftMs })
      } catch (caught) {
        error = caught
      }
    }
  }

  /** The members have changed. */
  resume(): void {
    for (const waiting of [...this.#waiting]) waiting.resume()
  }

  /** Until the members change, the deadline of an ask, or its abort. */
  #wait(message: Asked, options: AskOptions, dueMs: number): Promise<void> {
    const name = this.#router
    const { deadlines, clock } = this.#runtime
    const { signal } = options
    return new Promise<void>((resolve, reject) => {
      if (this.#waiting.size >= WAITING_ASKS_MAX) {
        reject(new AskRefusedError(name, message.type, 'the queue of asks that wait for a member'))
        return
      }
      const end = (): void => {
        this.#waiting.delete(waiting)
        deadlines.remove(waiting)
        signal?.removeEventListener('abort', abort)
      }
      const abort = (): void => {
        end()
        reject(new AskAbortedError(name, message.type, signal!.reason))
      }
      const waiting: Waiting = {
        dueMs: 0,
        position: -1,
        expire: () => {
          end()
          reject(this.#late(message, options))
        },
        resume: () => {
          end()
          resolve()
        },
      }
      if (signal?.aborted === true) {
        reject(new AskAbortedError(name, message.type, signal.reason))
        return
      }
      signal?.addEventListener('abort', abort, { once: true })
      this.#waiting.add(waiting)
      deadlines.add(waiting, Math.max(0, dueMs - clock.nowMs()))
    })
  }

  #late({ type }: Asked, { timeout }: AskOptions): AskTimeoutError {
    return new AskTimeoutError(this.#router, type, toMs(timeout))
  }
}
