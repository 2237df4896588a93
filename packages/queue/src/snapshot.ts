/** What waits, as `GET /queue` shows it. */

import type { ClassAccount, Entry } from './entry.ts'
import type { StrictPriorityLevel } from './strict-priority.ts'
import type { Tenant, TenantTable } from './tenants.ts'
import type {
  ClassRow,
  QueueSnapshot,
  RefusalReason,
  ServedTotals,
  StrictPriorityRow,
  TenantRow,
  WaitingTotals,
} from './types.ts'

interface SnapshotInput {
  readonly nowMs: number
  readonly agingMs: number
  readonly entries: Iterable<Entry>
  readonly classes: readonly ClassAccount[]
  readonly tenants: TenantTable
  readonly levels: readonly StrictPriorityLevel[]
  readonly bytes: number
  readonly drainTokensPerSecond: number | undefined
  readonly expectedMs: (policyClass: ClassAccount | undefined) => number | undefined
}

type Writable<T> = { -readonly [K in keyof T]: T[K] }

const NOTHING: WaitingTotals = Object.freeze({ requests: 0, promptTokens: 0, uncachedTokens: 0, oldestMs: 0 })

export function snapshotOf(input: SnapshotInput): QueueSnapshot {
  const { nowMs, classes, tenants, levels } = input
  const waiting: Writable<WaitingTotals> = { ...NOTHING }
  const byGroup = new Map<ClassAccount | Tenant | StrictPriorityLevel, Writable<WaitingTotals>>()
  let asked = 0
  for (const entry of input.entries) {
    if (entry.isAsked) {
      asked++
      continue
    }
    count(waiting, entry, nowMs)
    for (const group of [entry.policyClass, entry.tenant, entry.level!]) {
      let totals = byGroup.get(group)
      if (totals === undefined) {
        totals = { ...NOTHING }
        byGroup.set(group, totals)
      }
      count(totals, entry, nowMs)
    }
  }
  const served = servedBy(classes, nowMs)
  const classRows = classes.map(
    (account): ClassRow => ({
      policyClass: account.policy.name,
      waiting: byGroup.get(account) ?? NOTHING,
      elsewhere: account.elsewhere,
      served: served(account),
      refused: refusedOf(account.refused),
      expectedWaitMs: input.expectedMs(account),
    }),
  )
  const tenantRows = Array.from(
    tenants,
    (tenant): TenantRow => ({
      tenant: tenant.name,
      weight: tenant.weight,
      waiting: byGroup.get(tenant) ?? NOTHING,
      served: served(tenant),
      refused: refusedOf(tenant.refused),
      longPromptWorkers: tenant.longPromptWorkers,
      isHeld: tenants.isHeld(tenant, nowMs),
    }),
  )
  const levelRows = levels.map((level): StrictPriorityRow => {
    const totals = byGroup.get(level) ?? NOTHING
    return {
      strictPriority: level.strictPriority,
      waiting: totals,
      passedOver: level.passedOver,
      isStarving: level.passedOver > 0 && totals.oldestMs > input.agingMs,
    }
  })
  return {
    waiting,
    bytes: input.bytes,
    asked,
    drainTokensPerSecond: input.drainTokensPerSecond,
    expectedWaitMs: input.expectedMs(undefined),
    classes: classRows,
    tenants: tenantRows,
    strictPriorities: levelRows,
  }
}

function count(totals: Writable<WaitingTotals>, entry: Entry, nowMs: number): void {
  totals.requests++
  totals.promptTokens += entry.promptTokens
  totals.uncachedTokens += entry.uncachedTokens
  totals.oldestMs = Math.max(totals.oldestMs, nowMs - entry.arrivedMs)
}

function servedBy(classes: readonly ClassAccount[], nowMs: number) {
  const all = classes.reduce((sum, { recentTokens }) => sum + recentTokens.at(nowMs), 0)
  return ({ servedRequests, servedTokens, recentTokens }: ClassAccount | Tenant): ServedTotals => ({
    requests: servedRequests,
    uncachedTokens: servedTokens,
    share: all === 0 ? 0 : Math.min(1, recentTokens.at(nowMs) / all),
  })
}

function refusedOf(
  refused: ReadonlyMap<RefusalReason, number> | undefined,
): Readonly<Partial<Record<RefusalReason, number>>> {
  return Object.fromEntries(refused ?? [])
}
