/**
 * Metrics of the queue, by model and policy class. Classes are set by operators; models are as many as the
 * engines have adapters, so only `modelsMax` of them have labels of their own: those that wait or were placed
 * last. The others share one. Tenants are on `GET /queue`.
 */

import { BoundedNames, type Metrics, type ModelLabels, OTHER_NAMES } from '@homing/metrics'
import type { ClassRow } from '@homing/queue'
import type { ConsoleArgs } from '../console-args.ts'

/** Figures of a label and a class; the totals are counted here, so that they never move between labels. */
interface LabelledRow {
  waiting: number
  promptTokens: number
  uncachedTokens: number
  elsewhere: number
  oldestMs: number
  expectedWaitMs: number | undefined
  readonly placed: Totals
  readonly refused: Record<string, number>
}

interface Totals {
  requests: number
  uncachedTokens: number
}

/** What a model and class had at the last scrape. */
interface Seen {
  readonly placed: Totals
  readonly refused: Readonly<Record<string, number>>
}

const NOTHING_SEEN: Seen = { placed: { requests: 0, uncachedTokens: 0 }, refused: {} }

export function collectQueue(metrics: Metrics, args: ConsoleArgs, nowMs: () => number): void {
  const classes = metrics.table<LabelledRow, 'model' | 'class'>(
    ['model', 'class'],
    [
      ['homing_queue_waiting_requests', 'Requests that wait for room.', row => row.waiting],
      ['homing_queue_waiting_prompt_tokens', 'Tokens of the prompts that wait.', row => row.promptTokens],
      [
        'homing_queue_waiting_uncached_tokens',
        'Tokens that no worker holds, of the prompts that wait.',
        row => row.uncachedTokens,
      ],
      [
        'homing_queue_waiting_cached_tokens',
        'Tokens that some worker holds, of the prompts that wait.',
        row => row.promptTokens - row.uncachedTokens,
      ],
      [
        'homing_queue_waiting_elsewhere_requests',
        'Requests that wait at other routers of the same workers; they count towards the limits of classes.',
        row => row.elsewhere,
      ],
      ['homing_queue_oldest_seconds', 'Age of the oldest request that waits.', row => row.oldestMs / 1000],
      [
        'homing_queue_expected_wait_seconds',
        'How long a request that comes now is expected to wait.',
        row => (row.expectedWaitMs === undefined ? undefined : row.expectedWaitMs / 1000),
      ],
      ['homing_queue_placed_requests_total', 'Requests that were placed.', row => row.placed.requests],
      [
        'homing_queue_placed_uncached_tokens_total',
        'Tokens that no worker held, of the prompts that were placed.',
        row => row.placed.uncachedTokens,
      ],
    ],
  )
  const refused = metrics.counter({
    name: 'homing_queue_refused_requests_total',
    help: 'Requests that had to wait and could not, or not any longer.',
    labels: ['model', 'class', 'reason'],
  })
  const room = metrics.gauge({
    name: 'homing_queue_used_ratio',
    help: 'Part of its bounds that the queue uses: requests, tokens, bytes.',
    labels: ['bound'],
  })
  const book = new QueueBook(args.modelLabels)
  metrics.collect(async () => {
    const status = await args.queue.ask({ type: 'queueStatus' }, { timeout: args.askMsMax })
    const rows = book.rows(
      status.models.flatMap(({ model, snapshot }) => snapshot.classes.map(row => ({ model, row }))),
      status.models.length,
      nowMs(),
    )
    classes.replace(rows)
    refused.replaceTotals(
      rows.flatMap(({ row, labels }) =>
        Object.entries(row.refused).map(([reason, total]) => ({ total, labels: { ...labels, reason } })),
      ),
    )
    room.replace([
      { value: status.requests / Math.max(1, status.requestsMax), labels: { bound: 'requests' } },
      { value: status.tokens / Math.max(1, status.tokensMax), labels: { bound: 'tokens' } },
      { value: status.bytes / Math.max(1, status.bytesMax), labels: { bound: 'bytes' } },
    ])
  })
}

/** Which model and class counts under which label, and what was counted there. */
class QueueBook {
  readonly #labels: BoundedNames
  readonly #modelsMax: number
  /** By label and class. */
  readonly #rows = new Map<string, { readonly labels: { model: string; class: string }; row: LabelledRow }>()
  /** By model and class. */
  #seen = new Map<string, Seen>()

  constructor({ modelsMax, modelIdleMs }: ModelLabels) {
    this.#modelsMax = modelsMax
    this.#labels = new BoundedNames({
      namesMax: modelsMax,
      idleMs: modelIdleMs,
      forgotten: name => {
        for (const [key, { labels }] of this.#rows) if (labels.model === name) this.#rows.delete(key)
      },
    })
  }

  rows(
    given: readonly { readonly model: string; readonly row: ClassRow }[],
    models: number,
    nowMs: number,
  ): readonly { readonly row: LabelledRow; readonly labels: { model: string; class: string } }[] {
    const seen = new Map<string, Seen>()
    for (const { row } of this.#rows.values())
      Object.assign(row, { ...NOTHING_WAITS, expectedWaitMs: undefined })
    for (const { model, row } of given) {
      const key = JSON.stringify([model, row.policyClass])
      const before = this.#seen.get(key) ?? NOTHING_SEEN
      seen.set(key, { placed: { ...row.served }, refused: { ...row.refused } })
      const isIdle = row.waiting.requests === 0 && !hasMore(row, before)
      // As long as all have room, an idle one is shown with its zeros.
      const mayHave = models <= this.#modelsMax || !isIdle
      const label = mayHave ? this.#labels.of(model, nowMs) : this.#labels.has(model) ? model : OTHER_NAMES
      this.#add(label, row, before)
    }
    this.#seen = seen
    this.#labels.sweep(nowMs)
    return [...this.#rows.values()]
  }

  #add(model: string, row: ClassRow, before: Seen): void {
    const key = JSON.stringify([model, row.policyClass])
    let labelled = this.#rows.get(key)
    if (labelled === undefined) {
      labelled = {
        labels: { model, class: row.policyClass },
        row: {
          ...NOTHING_WAITS,
          expectedWaitMs: undefined,
          placed: { requests: 0, uncachedTokens: 0 },
          refused: {},
        },
      }
      this.#rows.set(key, labelled)
    }
    const to = labelled.row
    to.waiting += row.waiting.requests
    to.promptTokens += row.waiting.promptTokens
    to.uncachedTokens += row.waiting.uncachedTokens
    to.elsewhere += row.elsewhere.requests
    to.oldestMs = Math.max(to.oldestMs, row.waiting.oldestMs)
    if (row.expectedWaitMs !== undefined)
      to.expectedWaitMs = Math.max(to.expectedWaitMs ?? 0, row.expectedWaitMs)
    to.placed.requests += grown(row.served.requests, before.placed.requests)
    to.placed.uncachedTokens += grown(row.served.uncachedTokens, before.placed.uncachedTokens)
    for (const [reason, count] of Object.entries(row.refused))
      to.refused[reason] = (to.refused[reason] ?? 0) + grown(count, before.refused[reason] ?? 0)
  }
}

const NOTHING_WAITS = { waiting: 0, promptTokens: 0, uncachedTokens: 0, elsewhere: 0, oldestMs: 0 }

function hasMore({ served, refused }: ClassRow, before: Seen): boolean {
  if (served.requests !== before.placed.requests) return true
  return Object.entries(refused).some(([reason, count]) => count !== (before.refused[reason] ?? 0))
}

/** The queue has begun anew if its total is less than before. */
function grown(total: number, before: number): number {
  return total >= before ? total - before : total
}
