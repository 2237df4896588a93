/**
 * The raw figures of one thread: a queue, a microtask for each burst and a table of functions. No names,
 * bounds, deadlines, supervision, counters.
 */

import { costsOf, cpuTimes } from './cpu.ts'
import { type Add, perSecond, requireEqual } from './loads.ts'

const QUEUE_SIZE = 4096

type Arms = Readonly<Record<string, (message: never) => void>>

/** The kernel that any actor needs at least. */
class BareActor {
  readonly #arms: Arms
  readonly #slots: unknown[] = new Array(QUEUE_SIZE).fill(undefined)
  #head = 0
  #tail = 0
  #isPlanned = false

  constructor(arms: Arms) {
    this.#arms = arms
  }

  tell(message: { readonly type: string }): void {
    this.#slots[this.#tail & (QUEUE_SIZE - 1)] = message
    this.#tail++
    if (this.#isPlanned) return
    this.#isPlanned = true
    queueMicrotask(this.#turn)
  }

  readonly #turn = (): void => {
    while (this.#head !== this.#tail) {
      const at = this.#head & (QUEUE_SIZE - 1)
      const message = this.#slots[at] as { readonly type: string }
      this.#slots[at] = undefined
      this.#head++
      this.#arms[message.type]!(message as never)
    }
    this.#isPlanned = false
  }
}

/** A bare queue that is told in bursts. */
export class BareTells {
  readonly #actor: BareActor
  #told = 0
  #seen = 0
  #violations = 0

  constructor() {
    this.#actor = new BareActor({
      step: ({ n }: { n: number }) => {
        if (n !== ++this.#seen) this.#violations++
      },
    })
  }

  async tell(count: number, burst: number): Promise<{ readonly perS: number; readonly cpuNs: number }> {
    const before = await cpuTimes()
    const from = performance.now()
    const end = this.#told + count
    while (this.#told < end) {
      this.#actor.tell({ type: 'step', n: ++this.#told } as { type: string })
      if (this.#told % burst === 0) await undefined
    }
    await undefined
    const perS = perSecond(count, from)
    requireEqual('bare tells', this.#seen - this.#violations, end)
    return { perS, cpuNs: costsOf(count, before, await cpuTimes()).cpuNs }
  }
}

/** A promise and its resolve function in the message. */
export function bareAdd(): Add {
  const actor = new BareActor({
    add: ({ a, resolve }: { a: number; resolve: (value: number) => void }) => resolve(a + 1),
  })
  return a => new Promise<number>(resolve => actor.tell({ type: 'add', a, resolve } as { type: string }))
}

/** What a list of actors holds at least for each: an object, its arms, its queue, its place in a map. */
export function bareCell(id: number): object {
  return {
    id,
    name: 'idler',
    arms: undefined,
    slots: new Array(4),
    head: 0,
    tail: 0,
    isQueued: false,
    parent: null,
  }
}
