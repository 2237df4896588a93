/**
 * Naive engine: the rules of src/engine.ts, as plainly as they are stated there, one token and one block at a
 * time. `stepMs` gives the time of a step from its work. Only the default `storeAt`.
 */

import type { StepWork } from '@homing/engine'

export interface NaiveRequest {
  readonly name: number
  readonly arrivalMs: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly blockIds: readonly number[]
}

/** What happened, in order. */
export interface NaiveAnswer {
  readonly name: number
  readonly firstTokenMs: number
  readonly lastTokenMs: number
  readonly reusedTokens: number
}

interface Running {
  readonly request: NaiveRequest
  computed: number
  generated: number
  chunk: number
  reusedTokens: number
  firstTokenMs: number
  /** Cached blocks that it refers to. */
  readonly cached: number[]
  privateBlocks: number
}

export function naiveEngine(
  requests: readonly NaiveRequest[],
  options: {
    readonly blockTokens: number
    readonly capacityBlocks: number
    readonly stepTokensMax: number
    readonly sequencesMax: number
    readonly stepMs: (work: StepWork) => number
  },
): NaiveAnswer[] {
  const { blockTokens, capacityBlocks } = options
  const answers: NaiveAnswer[] = []
  const arriving = [...requests]
  const waiting: NaiveRequest[] = []
  let running: Running[] = []
  /** References of each cached block; those with none are evicted in the order of `unused`. */
  const references = new Map<number, number>()
  let unused: number[] = []
  let nowMs = 0

  const blocksInUse = (): number =>
    references.size + running.reduce((sum, { privateBlocks }) => sum + privateBlocks, 0)

  while (arriving.length > 0 || waiting.length > 0 || running.length > 0) {
    // What arrives during a step, or before its end, waits for the next one. An idle engine begins with one
    // request alone.
    while (arriving.length > 0 && arriving[0]!.arrivalMs < nowMs) waiting.push(arriving.shift()!)
    if (waiting.length === 0 && running.length === 0) {
      nowMs = arriving[0]!.arrivalMs
      waiting.push(arriving.shift()!)
    }

    const decoding = running.filter(({ generated }) => generated > 0)
    let budget = options.stepTokensMax - decoding.length
    for (const one of running) {
      one.chunk = one.generated > 0 ? 0 : Math.min(one.request.inputTokens - one.computed, budget)
      budget -= one.chunk
    }
    while (budget > 0 && waiting.length > 0 && running.length < options.sequencesMax) {
      const request = waiting[0]!
      const fullBlocks = Math.floor(request.inputTokens / blockTokens)
      let reused = 0
      while (reused < fullBlocks && references.has(request.blockIds[reused]!)) reused++
      const shared = request.blockIds.slice(0, reused)
      const blocksNew = Math.ceil((request.inputTokens + request.outputTokens) / blockTokens) - reused
      const evictable = unused.filter(id => !shared.includes(id)).length
      if (blocksNew > capacityBlocks - blocksInUse() + evictable) break
      waiting.shift()
      for (const id of shared) references.set(id, references.get(id)! + 1)
      unused = unused.filter(id => !shared.includes(id))
      while (capacityBlocks - blocksInUse() < blocksNew) references.delete(unused.shift()!)
      const reusedTokens = Math.min(reused * blockTokens, request.inputTokens - 1)
      const chunk = Math.min(request.inputTokens - reusedTokens, budget)
      budget -= chunk
      running.push({
        request,
        computed: reusedTokens,
        generated: 0,
        chunk,
        reusedTokens,
        firstTokenMs: 0,
        cached: [...shared],
        privateBlocks: blocksNew,
      })
    }

    const prefilling = running.filter(({ chunk }) => chunk > 0)
    nowMs += options.stepMs({
      prefillTokens: prefilling.reduce((sum, { chunk }) => sum + chunk, 0),
      prefillAttention: prefilling.reduce(
        (sum, { chunk, computed }) => sum + chunk * (computed + chunk / 2),
        0,
      ),
      decodeRequests: decoding.length,
      decodeContextTokens: decoding.reduce(
        (sum, { request, generated }) => sum + request.inputTokens + generated,
        0,
      ),
      kvUsage: 1 - (capacityBlocks - blocksInUse() + unused.length) / capacityBlocks,
    })

    for (const one of decoding) one.generated++
    for (const one of prefilling) {
      one.computed += one.chunk
      if (one.computed < one.request.inputTokens) continue
      const fullBlocks = Math.floor(one.request.inputTokens / blockTokens)
      for (const id of one.request.blockIds.slice(one.cached.length, fullBlocks)) {
        one.privateBlocks--
        references.set(id, (references.get(id) ?? 0) + 1)
        unused = unused.filter(other => other !== id)
        one.cached.push(id)
      }
      one.generated = 1
      one.firstTokenMs = nowMs
    }
    const isDone = ({ generated, request }: Running): boolean => generated === request.outputTokens
    // Those whose only token came now are first.
    const done = [
      ...prefilling.filter(isDone),
      ...decoding.filter(isDone).sort((a, b) => a.request.name - b.request.name),
    ]
    for (const { request, cached, firstTokenMs, reusedTokens } of done) {
      for (const id of [...cached].reverse()) {
        references.set(id, references.get(id)! - 1)
        if (references.get(id) === 0) unused.push(id)
      }
      answers.push({ name: request.name, firstTokenMs, lastTokenMs: nowMs, reusedTokens })
    }
    running = running.filter(one => !isDone(one))
  }
  return answers
}
