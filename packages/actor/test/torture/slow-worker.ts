/** An actor that sends itself work, and counts in memory that a death does not erase. */

import { type ActorRef, defineActor } from '@homing/actor'

type Work = { readonly type: 'work' }

/** The words of a worker: work that was begun, and what a life may begin at most; 0: all. */
export const HANDLED = 0
export const MOST = 1

export const slowWorker = defineActor(
  import.meta.url,
  'slowWorker',
)<
  Work | { readonly type: 'rest'; readonly left: number },
  { readonly handled: Int32Array<SharedArrayBuffer> }
>({
  setup(ctx, { handled }) {
    Atomics.store(handled, MOST, 0)
    const spin = (): void => {
      const endMs = performance.now() + 0.02
      while (performance.now() < endMs);
    }
    return {
      work() {
        Atomics.add(handled, HANDLED, 1)
        // Until its thread ends.
        while (
          Atomics.load(handled, MOST) > 0 &&
          Atomics.load(handled, HANDLED) >= Atomics.load(handled, MOST)
        );
        spin()
        ctx.self.tell({ type: 'rest', left: 4 })
      },
      rest({ left }) {
        spin()
        if (left > 0) ctx.self.tell({ type: 'rest', left: left - 1 })
      },
    }
  },
})

/** Tells workers in turn. */
export const floodWorker = defineActor(
  import.meta.url,
  'floodWorker',
)<{
  readonly type: 'flood'
  readonly refs: readonly ActorRef<Work>[]
  readonly count: number
}>({
  setup: () => ({
    flood({ refs, count }) {
      for (let n = 0; n < count; n++) refs[n % refs.length]!.tell({ type: 'work' })
    },
  }),
})
