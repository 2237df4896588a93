/**
 * Runtimes of several threads in one, with wires between them that carry frames only when a test says
 * so: every order in which links can be faster than each other can be had, and repeated.
 */

import { SimulatedClock, seededRandom, silentLog } from '@homing/base'
import type { Registration } from '../src/links/frames.ts'
import type { Frame, LinkHandlers, ThreadLink } from '../src/links/link.ts'
import { Runtime } from '../src/runtime/runtime.ts'

/** A runtime that calls itself `thread`, with a registrar that only takes notes. */
export function makeRuntime(
  thread: string,
  uid: number,
  clock = new SimulatedClock(),
): Runtime & { readonly registered: Registration[] } {
  const runtime = new Runtime({
    thread,
    uid,
    pools: [],
    clock,
    random: seededRandom(uid),
    log: silentLog,
    provide: [],
    isAlone: false,
  })
  const registered: Registration[] = []
  runtime.registrar = {
    register: registration => void registered.push(registration),
    unregister() {},
    resolve() {},
  }
  return Object.assign(runtime, { registered })
}

/** Both directions between two runtimes. */
export class Wire {
  readonly #handlers = new Map<Runtime, LinkHandlers>()
  readonly #sent = new Map<Runtime, Frame[]>()
  readonly #ends: readonly [Runtime, Runtime]

  constructor(one: Runtime, other: Runtime) {
    this.#ends = [one, other]
    for (const [from, to] of [
      [one, other],
      [other, one],
    ] as const) {
      this.#sent.set(from, [])
      from.lives.connect(to.thread, to.uid, handlers => this.#open(from, handlers))
    }
  }

  /** The frames that `from` has sent and the other end has not been given, oldest first. */
  waiting(from: Runtime): readonly Frame[] {
    return this.#sent.get(from)!
  }

  /** Gives the other end what `from` has sent. */
  deliver(from: Runtime): void {
    const to = this.#ends[0] === from ? this.#ends[1] : this.#ends[0]
    for (const frame of this.#sent.get(from)!.splice(0)) this.#handlers.get(to)!.onFrame(frame)
  }

  /** Gives both ends what was sent, until nothing is left. */
  settle(): void {
    while (this.#ends.some(end => this.#sent.get(end)!.length > 0)) {
      for (const end of this.#ends) this.deliver(end)
    }
  }

  /** Closes the end of `at`, as it does when the other thread is gone. */
  cut(at: Runtime): void {
    this.#handlers.get(at)!.onClosed()
  }

  #open(from: Runtime, handlers: LinkHandlers): ThreadLink {
    this.#handlers.set(from, handlers)
    const take = (frame: Frame): void => {
      this.#sent.get(from)!.push({ ...frame, body: structuredClone(frame.body) })
    }
    return {
      offer(frame) {
        take(frame)
        return true
      },
      send: take,
      discard: () => 0,
      close: () => handlers.onClosed(),
    }
  }
}

/** Lets the actors of all runtimes run, imports included, until none has anything to do. */
export async function settled(...runtimes: readonly Runtime[]): Promise<void> {
  for (let quietRounds = 0; quietRounds < 5; ) {
    await new Promise<void>(resolve => setImmediate(resolve))
    quietRounds = runtimes.every(runtime => runtime.turns.isIdle) ? quietRounds + 1 : 0
  }
}
