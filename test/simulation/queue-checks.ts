/**
 * Rules for requests that went through the waiting queue, checked from outside: by what their clients saw,
 * and by when an engine was called for each.
 *
 *   C1  Each request ends in a way that its own options and the faults of the history allow. A request
 *       refused for lack of room went to no engine; an answered request went to an engine, and without a
 *       failing worker to one engine, once. A failing router, tracker or directory fails one request at most.
 *   C2  A wait ends at its deadline: not earlier, and no later than the queue's next look.
 *   C3  Of two waiting requests that may go to any worker, with the same tenant, class and strict priority,
 *       the first by the order is placed first; with different strict priorities, the one with the higher.
 *       This holds under all faults: a request that a failure removes from the queue is refused, and the
 *       others keep their order.
 *   C4  While two tenants of a class both wait, their shares by weight differ by a request of each at most
 *       (fair-flows.ts). Only without faults: a failure refunds or forgets charges. And only while no long
 *       or pinned prompts are held back.
 *   C5  No request waits while an engine is idle, except until the router hears of it and has asked. Under
 *       the conditions of C4.
 */

import { AGING_MS_DEFAULT, type QueueOrder } from '@homing/queue'

export interface Sent {
  readonly number: number
  readonly sentMs: number
  readonly promptTokens: number
  /** Longer than a step: the rule for long prompts may hold it. */
  readonly isLong: boolean
  readonly tenant: string
  /** '': it names none. */
  readonly policyClass: string
  readonly strictPriority: number
  readonly jumpSeconds: number
  /** It can go to one worker only. */
  readonly isPinned: boolean
  readonly doNotQueue: boolean
  readonly timeoutMs: number | undefined
  /** When an engine was called for it, and which: by URL. */
  readonly calls: number[]
  readonly engines: string[]
  leftMs: number | undefined
  endMs: number | undefined
  end: string | undefined
}

export interface Situation {
  readonly sent: readonly Sent[]
  readonly faults: readonly string[]
  readonly requestsMax: number
  readonly timeoutMs: number
  readonly retriesMax: number
}

/**
 * From the client to the queue with its prompt read and measured, and from a decision to the call: never
 * more.
 */
const WAY_MS = 10
/** The same while one of those on the way is being restarted. */
const SLOW_WAY_MS = 200
const SLOWING = /queue|gateway|router|tracker|directory/
/** Faults that fail one request at most; what waits waits on. */
const FORGIVEN: ReadonlySet<string> = new Set([
  ...['router fails', 'tracker fails', 'directory fails', 'gateway fails'],
  'drain',
])
/** From a deadline until the queue looks, and the answer. */
const LATE_MS_MAX = 100 + WAY_MS
/**
 * From the end of an engine's last request until the next request reaches it: the router learns of the end,
 * and the queue asks the router about the waiting requests.
 */
const IDLE_MS_MAX = 2 * WAY_MS

// ── C1, C2 ─────────────────────────────────────────────────────────────────────────────────────

export function checkEnds(situation: Situation): readonly string[] {
  const { sent: all, faults } = situation
  const violations = all.flatMap(sent => {
    const why = whyWrong(sent, situation)
    return why === undefined ? [] : [`request ${sent.number} (${sent.end}): ${why}`]
  })
  const failed = all.filter(({ end }) => end === 'no_worker').length
  // The one that it has in its hands.
  if (faults.every(name => FORGIVEN.has(name)) && failed > faults.length)
    violations.push(`${failed} requests failed with ${faults.join(', ')}`)
  return violations
}

function whyWrong(sent: Sent, situation: Situation): string | undefined {
  const { end, calls } = sent
  if (end === undefined) return 'it never ended'
  const { faults, retriesMax } = situation
  const hasWorkerFault = faults.some(name => name.includes('worker'))
  const callsMax = hasWorkerFault ? 1 + retriesMax : 1
  if (calls.length > callsMax) return `${calls.length} engines were called for it`
  if (end === '200') return calls.length > 0 ? undefined : 'no engine was called for it'
  const isRefusal = REFUSALS.has(end)
  if (isRefusal && calls.length > 0 && !hasWorkerFault) return 'an engine was called for it'
  return whyNotAllowed(sent, situation)
}

/** Without a fault, these results occur only for a reason in the request itself. */
const REFUSALS: ReadonlySet<string> = new Set(['queue_full', 'deadline', 'do_not_queue'])

const FILLING = /gateway|worker/
/** Of the ends that only a fault explains: which. */
const CAUSES: readonly (readonly [ends: RegExp, faults: RegExp])[] = [
  [/^no_worker$/, /worker|queue|router|tracker|directory/],
  [/upstream/, /worker|gateway/],
  [/shutting_down$/, /drain/],
  [/^cut: /, /gateway|drain/],
]

function whyNotAllowed(
  sent: Sent,
  { faults, sent: all, requestsMax, timeoutMs }: Situation,
): string | undefined {
  const end = sent.end!
  const endMs = sent.endMs!
  switch (end) {
    case 'do_not_queue':
      return sent.doNotQueue ? undefined : 'it did not ask for that'
    case 'deadline': {
      const dueMs = sent.sentMs + Math.min(timeoutMs, sent.timeoutMs ?? timeoutMs)
      if (endMs < dueMs) return `its deadline was ${dueMs - endMs} ms away`
      // A request that was being placed at that moment, or tried on a failed worker, gets its answer later.
      return endMs > dueMs + LATE_MS_MAX && faults.length === 0 ? `${endMs - dueMs} ms too late` : undefined
    }
    case 'queue_full': {
      const beganMs = endMs - WAY_MS
      const others = all.filter(
        one => one !== sent && one.sentMs <= endMs && !(one.endMs! < beganMs) && !(one.calls[0]! < beganMs),
      )
      // What a gateway that failed had waiting still counts for a moment, and what a worker failed waits
      // again.
      const isFull = others.length >= requestsMax || faults.some(name => FILLING.test(name))
      return isFull ? undefined : `${others.length} of ${requestsMax} were there`
    }
  }
  if (sent.leftMs !== undefined) return undefined
  const cause = CAUSES.find(([ends]) => ends.test(end))?.[1]
  return cause !== undefined && faults.some(name => cause.test(name))
    ? undefined
    : `${faults.join(', ') || 'nothing'} is no reason`
}

// ── C3 ─────────────────────────────────────────────────────────────────────────────────────────

export interface Checked {
  readonly violations: readonly string[]
  /** How often it applied. */
  readonly checked: number
}

export function checkOrder(sent: readonly Sent[], order: QueueOrder, faults: readonly string[]): Checked {
  const violations: string[] = []
  let checked = 0
  const wayMs = faults.some(name => SLOWING.test(name)) ? SLOW_WAY_MS : WAY_MS
  // Of those that went to one engine only: it was in the queue from its arrival to its call.
  const placed = sent.filter(({ calls, isPinned }) => calls.length === 1 && !isPinned)
  for (const first of placed) {
    for (const second of placed) {
      if (!mustGoBefore(first, second, order)) continue
      // Both waited when the first of them was placed.
      const [firstMs, secondMs] = [first.calls[0]!, second.calls[0]!]
      if (Math.min(firstMs, secondMs) < Math.max(first.sentMs, second.sentMs) + wayMs) continue
      // One that has aged may go before some of a higher strict priority.
      const isLower = second.strictPriority < first.strictPriority
      if (isLower && secondMs - second.sentMs >= AGING_MS_DEFAULT) continue
      checked++
      if (secondMs < firstMs)
        violations.push(`request ${second.number} went before ${first.number}, against the order ${order}`)
    }
  }
  return { violations, checked }
}

function mustGoBefore(first: Sent, second: Sent, order: QueueOrder): boolean {
  if (first.policyClass !== second.policyClass || first.isLong !== second.isLong) return false
  if (first.tenant !== second.tenant) return false
  if (first.strictPriority !== second.strictPriority) return first.strictPriority > second.strictPriority
  const [a, b] = [keyOf(first, order), keyOf(second, order)]
  return a !== undefined && b !== undefined && a < b
}

/**
 * Smaller keys go first; undefined: that changes with time. Arrivals that are closer than the way is long may
 * change places.
 */
function keyOf({ sentMs, jumpSeconds, promptTokens }: Sent, order: QueueOrder): number | undefined {
  switch (order) {
    case 'fcfs':
      return Math.floor(sentMs / WAY_MS) * WAY_MS - 1000 * jumpSeconds
    case 'lcfs':
      return -(Math.floor(sentMs / WAY_MS) * WAY_MS + 1000 * jumpSeconds)
    case 'wspt':
    case 'wspt-total':
      return -(1 + jumpSeconds) / promptTokens
    case 'response-ratio':
      return undefined
  }
}

// ── C4 ─────────────────────────────────────────────────────────────────────────────────────────

/** Of requests that are all short, and may all go to any worker. */
export function checkShares(sent: readonly Sent[], weights: ReadonlyMap<string, number>): Checked {
  const violations: string[] = []
  let checked = 0
  const flows = Map.groupBy(sent, ({ policyClass, strictPriority }) => `${policyClass} ${strictPriority}`)
  for (const flow of flows.values()) {
    const byTenant = [...Map.groupBy(flow, ({ tenant }) => tenant)]
    for (const [i, [a, ofA]] of byTenant.entries()) {
      for (const [b, ofB] of byTenant.slice(i + 1)) {
        for (const [fromMs, toMs] of both(backlog(ofA), backlog(ofB))) {
          checked++
          const [gotA, gotB] = [served(ofA, fromMs, toMs), served(ofB, fromMs, toMs)]
          const [weightA, weightB] = [weights.get(a) ?? 1, weights.get(b) ?? 1]
          const difference = Math.abs(gotA.tokens / weightA - gotB.tokens / weightB)
          const bound = gotA.largest / weightA + gotB.largest / weightB
          if (difference > bound + 1e-6)
            violations.push(
              `from ${fromMs} to ${toMs} tenant "${a}" got ${gotA.tokens} tokens, "${b}" ${gotB.tokens}, by weights ${weightA} and ${weightB}`,
            )
        }
      }
    }
  }
  return { violations, checked }
}

// ── C5 ─────────────────────────────────────────────────────────────────────────────────────────

/**
 * Of requests that are all short, and may all go to any of the engines. `checked`: those that waited for
 * longer than that.
 */
export function checkWork(sent: readonly Sent[], engines: readonly string[]): Checked {
  const violations: string[] = []
  let checked = 0
  const busy = engines.map(url =>
    sent
      .filter(one => one.engines[0] === url)
      .map(({ calls, endMs }): Span => [calls[0]!, endMs!])
      .sort(([a], [b]) => a - b),
  )
  for (const { number, sentMs, calls, leftMs, endMs } of sent) {
    const [fromMs, toMs] = [sentMs + WAY_MS, calls[0] ?? leftMs ?? endMs!]
    if (toMs - fromMs <= IDLE_MS_MAX) continue
    checked++
    for (const [i, spans] of busy.entries()) {
      const idleMs = longestGap(spans, fromMs, toMs)
      if (idleMs > IDLE_MS_MAX)
        violations.push(
          `request ${number} waited from ${fromMs} to ${toMs} while ${engines[i]} was idle for ${idleMs} ms`,
        )
    }
  }
  return { violations, checked }
}

/** The longest gap that no span covers; the spans are in order. */
function longestGap(spans: readonly Span[], fromMs: number, toMs: number): number {
  let longestMs = 0
  let coveredMs = fromMs
  for (const [startMs, endMs] of spans) {
    if (startMs >= toMs) break
    longestMs = Math.max(longestMs, startMs - coveredMs)
    coveredMs = Math.max(coveredMs, endMs)
  }
  return Math.max(longestMs, toMs - coveredMs)
}

type Span = readonly [fromMs: number, toMs: number]

/** The times at which at least one of them waits for certain. */
function backlog(sent: readonly Sent[]): readonly Span[] {
  const spans: [number, number][] = []
  const waits = sent
    .map(({ sentMs, calls, endMs }): Span => [sentMs + WAY_MS, (calls[0] ?? endMs!) - WAY_MS])
    .filter(([fromMs, toMs]) => fromMs < toMs)
    .sort(([a], [b]) => a - b)
  for (const [fromMs, toMs] of waits) {
    const last = spans.at(-1)
    if (last === undefined || fromMs > last[1]) spans.push([fromMs, toMs])
    else last[1] = Math.max(last[1], toMs)
  }
  return spans
}

function both(a: readonly Span[], b: readonly Span[]): readonly Span[] {
  return a.flatMap(([fromA, toA]) =>
    b.flatMap(([fromB, toB]): readonly Span[] => {
      const span = [Math.max(fromA, fromB), Math.min(toA, toB)] as const
      return span[0] < span[1] ? [span] : []
    }),
  )
}

function served(
  sent: readonly Sent[],
  fromMs: number,
  toMs: number,
): { readonly tokens: number; readonly largest: number } {
  const placed = sent.filter(
    ({ calls: [callMs] }) => callMs !== undefined && callMs >= fromMs && callMs <= toMs,
  )
  return {
    tokens: placed.reduce((sum, { promptTokens }) => sum + promptTokens, 0),
    largest: sent.reduce((most, { promptTokens }) => Math.max(most, promptTokens), 0),
  }
}
