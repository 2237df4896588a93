/** What waits, as `GET /queue` shows it. */

import type { ClassAccount, Entry, LevelOfEntry } from './entry.ts'
import type { StrictPriorityLevel } from './strict-priority.ts'
import type { Tenant } from './tenant.ts'
import type { TenantTable } from './tenants.ts'
import type {
  ClassRow,
  QueueSnapshot,
  RefusalReason,
  ServedTotals,
  StrictPriorityRow,
  TenantRow,
  WaitingTotals,
  WaitReason,
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
  readonly expectedMs: (policyClass: ClassAccount | undefined, tenant?: Tenant) => number | undefined
  readonly whyOf: (entry: Entry) => WaitReason
}

type Writable<T> = { -readonly [K in keyof T]: T[K] }
type Totals = Writable<WaitingTotals> & { readonly why: Record<WaitReason, number> }

const totals = (): Totals => ({
  requests: 0,
  promptTokens: 0,
  uncachedTokens: 0,
  oldestMs: 0,
  why: { no_room: 0, others_first: 0, long_prompt: 0 },
})
const NOTHING: WaitingTotals = totals()

export function snapshotOf(input: SnapshotInput): QueueSnapshot {
  const { nowMs, classes, tenants, levels } = input
  const waiting = totals()
  const byGroup = new Map<ClassAccount | Tenant | LevelOfEntry, Totals>()
  let asked = 0
  for (const entry of input.entries) {
    if (entry.isAsked) {
      asked++
      continue
    }
    const why = input.whyOf(entry)
    count(waiting, entry, why, nowMs)
    for (const group of [entry.policyClass, entry.tenant, entry.level!]) {
      let ofGroup = byGroup.get(group)
      if (ofGroup === undefined) {
        ofGroup = totals()
        byGroup.set(group, ofGroup)
      }
      count(ofGroup, entry, why, nowMs)
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
      expectedWaitMs: input.expectedMs(undefined, tenant),
    }),
  )
  const levelRows = levels.map((level): StrictPriorityRow => {
    const ofLevel = byGroup.get(level) ?? NOTHING
    return {
      strictPriority: level.strictPriority,
      waiting: ofLevel,
      passedOver: level.passedOver,
      isStarving: level.passedOver > 0 && ofLevel.oldestMs > input.agingMs,
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

function count(group: Totals, entry: Entry, why: WaitReason, nowMs: number): void {
  group.requests++
  group.promptTokens += entry.promptTokens
  group.uncachedTokens += entry.uncachedTokens
  group.oldestMs = Math.max(group.oldestMs, nowMs - entry.arrivedMs)
  group.why[why]++
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
