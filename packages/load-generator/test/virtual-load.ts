/** Load runs on a simulated clock, against a server that is a function. */

import { SimulatedClock, seededRandom } from '@homing/base'
import {
  type LoadFigures,
  type LoadRequest,
  LoadRun,
  type LoadRunOptions,
  type Outcome,
  type Send,
  Tally,
} from '../src/index.ts'

/** What the server makes of the request with this number, after how long; undefined: it never answers. */
export type Answering = (
  number: number,
  nowMs: number,
) => { readonly afterMs: number; readonly failure?: 'status' } | undefined

const COUNTS = { promptTokens: 100, completionTokens: 11, cachedTokens: 40 }

export interface VirtualLoad {
  readonly clock: SimulatedClock
  readonly run: LoadRun
  readonly tally: Tally
  /** When each request was sent. */
  readonly sentMs: number[]
  /** Most that were open at one time. */
  readonly openMost: () => number
}

export function virtualLoad(
  answering: Answering,
  options: Pick<LoadRunOptions, 'pace'> & Partial<LoadRunOptions>,
): VirtualLoad {
  const clock = new SimulatedClock()
  const tally = new Tally()
  const sentMs: number[] = []
  let open = 0
  let most = 0
  const send: Send = (_request, listener) => {
    const number = sentMs.push(clock.nowMs()) - 1
    let hasEnded = false
    open++
    most = Math.max(most, open)
    const end = (outcome: Outcome): void => {
      if (hasEnded) return
      hasEnded = true
      open--
      listener.ended(outcome)
    }
    const answer = answering(number, clock.nowMs())
    if (answer !== undefined)
      clock.after(answer.afterMs, () => {
        if (answer.failure !== undefined)
          end({ failure: { kind: answer.failure, status: 503, detail: 'full' } })
        else {
          const lastMs = clock.nowMs()
          end({ ...COUNTS, firstMs: lastMs - answer.afterMs / 2, lastMs, chunks: 11, homing: undefined })
        }
      })
    return failure => end({ failure })
  }
  const run = new LoadRun({
    clock,
    random: seededRandom(3),
    send,
    requests: endless(),
    waitingMax: 1000,
    requestsMax: Number.POSITIVE_INFINITY,
    durationMs: Number.POSITIVE_INFINITY,
    warmup: 0,
    timeoutMs: 60_000,
    tallies: [tally],
    ...options,
  })
  return { clock, run, tally, sentMs, openMost: () => most }
}

/** Moves time on until the run is over. */
export async function finish({ clock, run, tally }: VirtualLoad): Promise<LoadFigures> {
  let isOver = false
  const over = run.run().then(() => {
    isOver = true
  })
  for (;;) {
    // Promises settle before time goes on.
    await new Promise(resolve => setImmediate(resolve))
    if (isOver) break
    const { nextDueMs } = clock
    if (nextDueMs === undefined) throw new Error('the run waits for nothing')
    clock.advance(nextDueMs - clock.nowMs())
  }
  await over
  return tally.figures(undefined)
}

async function* endless(): AsyncGenerator<LoadRequest> {
  for (let number = 0; ; number++) yield requestAt(undefined, number)
}

export function requestAt(atMs: number | undefined, number = 0): LoadRequest {
  return { atMs, endpoint: 'chat', body: () => ({ number }) }
}
