/**
 * Simulate plan: turns the settings of `homing simulate` into the cells to run and the facts of the report.
 *
 * A decision log names its fleet: settings that the command line leaves out are those of the log. Before any
 * conclusion, the logged run itself is simulated and compared with the log.
 */

import { numbersOf, readTenantWeights, type SettingSource, type SimulateSettings } from '@homing/config'
import { PROFILE_NAMES, type ProfileName } from '@homing/engine'
import { thresholdOf } from '@homing/queue'
import {
  type CellSelection,
  type CellSpec,
  type Column,
  detectBinMs,
  FIXED_COLUMNS,
  FLEETS,
  fitLog,
  fitText,
  type InlineProfile,
  isAutoSelection,
  type LogFit,
  type LogTrace,
  logTrace,
  logWorkload,
  operatingSpeeds,
  parseColumn,
  parseWorkload,
  type QueueSpec,
  type ReportAbout,
  readProfile,
  type SweepPlan,
  type SweepWorkload,
  type TierName,
  type Workload,
  workloadIdentity,
} from '@homing/simulate'
import { type DecisionLog, isDecisionLog, readDecisionLog } from '@homing/trace'
import { quoted } from './shell-word.ts'

/** Offsets of arrivals within a bin differ by so much from seed to seed. */
const JITTER_SHARE = 0.2
const DEFAULT_TRACE = 'generator:sessions'
const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/** The columns of a list whose items may name several. Throws UnknownPolicyError. */
export function columnsOf(policies: readonly string[]): readonly Column[] {
  const names = policies.length === 0 ? FIXED_COLUMNS : policies.flatMap(item => item.split(','))
  const columns = new Map<string, Column>()
  for (const name of names) {
    const column = parseColumn(name.trim())
    columns.set(column.name, column)
  }
  return [...columns.values()]
}

/** A decision log among the traces, and how well it is simulated. */
export interface PlannedLog {
  readonly log: DecisionLog
  readonly trace: LogTrace
  readonly fit: LogFit
}

export interface SimulatePlan extends SweepPlan {
  readonly log?: PlannedLog
}

/** Where the settings came from: what a log says counts unless something else was given. */
export type SimulateSources = Readonly<Record<keyof SimulateSettings, SettingSource>>

/** Throws what is wrong with traces, logs, generators and profiles. */
export async function planOf(settings: SimulateSettings, sources: SimulateSources): Promise<SimulatePlan> {
  const fleet = FLEETS[settings.fleet]
  const workers = settings.workers ?? fleet.workers
  const profile = profileOf(settings.profile ?? fleet.profile)
  const copies = settings.copies ?? fleet.copies
  const base: Omit<CellSpec, 'speed' | 'seed' | 'selection'> = {
    workers,
    profile,
    blockTokens: settings.blockSizeTokens,
    routers: settings.routers,
    view: viewOf(settings),
    knowsOutput: settings.knowsOutput,
    copies,
    stretch: settings.stretch,
    warmupShare: settings.warmupShare,
    ...(settings.replicaSync && { replicaSyncMs: settings.replicaDelayMs }),
    ...(settings.kvTokens !== undefined && { kvCapacityTokens: settings.kvTokens }),
    ...(settings.slowShare > 0 && { slow: { share: settings.slowShare, factor: settings.slowFactor } }),
    ...(settings.deaths.length > 0 && { deaths: settings.deaths.map(changeOf) }),
    ...(settings.joins.length > 0 && { joins: settings.joins.map(changeOf) }),
  }
  const given = numbersOf(settings.speeds)
  const workloads: SweepWorkload[] = []
  const { logPaths, others } = await dividedTraces(settings.traces)
  for (const text of others) {
    const workload = await parseWorkload(text, settings.requestsMax)
    const binMs = await binOf(settings.spread, workload)
    // A fleet that is larger than its name has as much more to do.
    const scale = workers / fleet.workers
    const speeds =
      given.length > 0 ? given : operatingSpeeds(settings.fleet, workload.name, copies).map(s => s * scale)
    workloads.push({
      workload,
      speeds: [...new Set(speeds)].sort((a, b) => a - b),
      speedGuess: speeds[Math.floor(speeds.length / 2)]!,
      spec: { ...base, ...(binMs > 0 && { spread: { binMs, jitterShare: JITTER_SHARE } }) },
    })
  }
  const planned = logPaths.length === 0 ? undefined : await plannedLog(logPaths, profile, settings.kvTokens)
  if (planned !== undefined) {
    const speeds = given.length > 0 ? given : [1]
    workloads.push({
      workload: await logWorkload(logPaths, settings.requestsMax),
      speeds: [...new Set(speeds)].sort((a, b) => a - b),
      speedGuess: 1,
      spec: specOfLog(base, planned, settings, sources),
    })
  }
  const columns = columnsOf(settings.policies).map(column => {
    const queue = queueOf(settings, column.selection)
    return {
      ...column,
      selection: {
        ...column.selection,
        temperature: settings.temperature,
        ...(queue !== undefined && { queue }),
      },
    }
  })
  return {
    workloads: distinctWorkloads(workloads),
    columns,
    seeds: Array.from({ length: settings.seeds }, (_, i) => settings.firstSeed + i),
    loadShares: [...new Set(numbersOf(settings.loads).map(percent => percent / 100))].sort((a, b) => a - b),
    capacityTier: tierOf(settings.capacity),
    ...(planned !== undefined && { log: planned }),
  }
}

/** As the router has it, also where nothing is given. */
function queueOf(
  { queueThreshold: given, queueOrder, tenantWeights, unnamedTenants }: SimulateSettings,
  selection: CellSelection,
): QueueSpec | undefined {
  const weights = readTenantWeights(tenantWeights)
  const isWord = given === undefined || given === 'none' || given === 'auto'
  const threshold = isWord ? given : Number(given)
  if (thresholdOf(threshold, isAutoSelection(selection), weights.size > 0) === undefined) return undefined
  return {
    threshold: typeof threshold === 'number' ? threshold : 'auto',
    order: queueOrder,
    ...(weights.size > 0 && { tenantWeights: Object.fromEntries(weights), unnamedTenants }),
  }
}

/** One of each, under names that differ: tables and figures are told apart by them. */
function distinctWorkloads(workloads: readonly SweepWorkload[]): readonly SweepWorkload[] {
  const distinct = new Map(workloads.map(each => [JSON.stringify(workloadIdentity(each.workload)), each]))
  const byName = Map.groupBy(distinct.values(), each => each.workload.name)
  return [...distinct.values()].map(each => {
    const { workload } = each
    if (byName.get(workload.name)!.length === 1 || workload.kind === 'generator') return each
    const name = workload.kind === 'log' ? workload.paths.join(' ') : workload.path
    return { ...each, workload: { ...workload, name } }
  })
}

/** Decision logs, which are one trace, and all others. */
async function dividedTraces(
  traces: readonly string[],
): Promise<{ readonly logPaths: readonly string[]; readonly others: readonly string[] }> {
  if (traces.length === 0) return { logPaths: [], others: [DEFAULT_TRACE] }
  const logPaths: string[] = []
  const others: string[] = []
  for (const text of traces) {
    const isLog = !text.startsWith('generator:') && (await isDecisionLog(text))
    ;(isLog ? logPaths : others).push(text)
  }
  return { logPaths, others }
}

async function plannedLog(
  paths: readonly string[],
  profile: CellSpec['profile'],
  kvTokens: number | undefined,
): Promise<PlannedLog> {
  const log = await readDecisionLog(paths)
  const trace = logTrace(log)
  // What the log says was so, whatever is asked now.
  const kvCapacityTokens = trace.kvCapacityTokens ?? kvTokens
  const fit = await fitLog(log, { profile, ...(kvCapacityTokens !== undefined && { kvCapacityTokens }) })
  return { log, trace, fit }
}

/** The fleet as it was, unless something else is given. */
function specOfLog(
  base: SweepWorkload['spec'],
  { log, trace, fit }: PlannedLog,
  settings: SimulateSettings,
  sources: SimulateSources,
): SweepWorkload['spec'] {
  const isGiven = (key: keyof SimulateSettings): boolean => sources[key].kind !== 'default'
  const kvCapacityTokens = settings.kvTokens ?? trace.kvCapacityTokens
  // The last way in which it was placed.
  const hadEvents = log.selections.at(-1)?.followsEvents ?? true
  return {
    ...base,
    workers: isGiven('workers') || isGiven('fleet') ? base.workers : trace.workers,
    copies: isGiven('copies') || isGiven('fleet') ? base.copies : 1,
    blockTokens: isGiven('blockSizeTokens') ? base.blockTokens : trace.blockTokens,
    traceBlockTokens: trace.blockTokens,
    ...(kvCapacityTokens !== undefined && { kvCapacityTokens }),
    storeAt: 'chunk-start',
    baseLatencyMs: fit.routerMs + fit.baseMs,
    view: isGiven('view') || hadEvents ? base.view : viewOf({ ...settings, view: 'guessed' }),
  }
}

/** The first lines about a decision log: its fit, and what it lacks. */
export function logLines({ log, trace, fit }: PlannedLog): readonly string[] {
  const lines = [fitText(fit)]
  for (const { path, line } of log.cuts)
    lines.push(`${path} was cut in line ${line}: what is before it counts`)
  if (log.droppedRequests > 0)
    lines.push(`${log.droppedRequests} requests are missing: the router had no room for their lines`)
  if (fit.leftOut > 0) lines.push(`${fit.leftOut} requests were left out: no worker has worked on them`)
  if (log.fleetChanges > 0)
    lines.push(`the fleet changed ${log.fleetChanges} times: here all of its workers are there all the time`)
  if (trace.kvCapacityTokens === undefined)
    lines.push(
      'the log does not name one size for the caches of all workers: the profile has it, unless --kv-tokens is given',
    )
  // One that was down when it was named last tells no models.
  const served = log.workers.map(({ models }) => models.toSorted().join()).filter(models => models !== '')
  if (new Set(served).size > 1)
    lines.push('workers serve different models: in the tables every worker takes every request')
  return lines
}

/** What the report says of the run. `argv`: the options as they were typed. */
export function aboutOf(plan: SimulatePlan, argv: readonly string[]): ReportAbout {
  const { spec } = plan.workloads[0]!
  const profile = typeof spec.profile === 'string' ? spec.profile : `${spec.profile.name} (of a file)`
  const known =
    spec.replicaSyncMs === undefined
      ? 'do not know of each other'
      : `know of each other after ${spec.replicaSyncMs} ms`
  const routers = spec.routers === 1 ? 'One router' : `${spec.routers} routers that ${known}`
  return {
    command: `homing simulate ${argv.map(quoted).join(' ')}`.trim(),
    fleet: `${spec.workers} workers with profile ${profile}, blocks of ${spec.blockTokens} tokens${spec.copies > 1 ? `, ${spec.copies} copies of the traffic` : ''}.`,
    view: `${routers}; ${VIEWS[spec.view.kind](spec)}.`,
    workloads: plan.workloads.map(({ workload }) => {
      const fit = workload.kind === 'log' && plan.log !== undefined ? `; ${fitText(plan.log.fit)}` : ''
      return { name: workload.name, source: `${sourceText(workload)}${fit}` }
    }),
    seeds: plan.seeds,
    warmupShare: spec.warmupShare,
  }
}

const VIEWS: Readonly<Record<SimulateSettings['view'], (spec: SweepWorkload['spec']) => string>> = {
  exact: () => 'KV events arrive at once',
  late: ({ view }) => `KV events arrive ${view.eventDelayMs} ms late`,
  guessed: () => 'without KV events: prompts count as held where they were sent',
  text: () => 'without KV events or tokens: texts count as held where they were sent',
  none: () => 'nothing is known of the caches',
}

function viewOf(settings: SimulateSettings): CellSpec['view'] {
  const { view } = settings
  return {
    kind: view,
    eventDelayMs: view === 'late' ? settings.eventDelayMs : 0,
    signalDelayMs: settings.signalDelayMs,
    ...(settings.eventLossShare > 0 && { lossShare: settings.eventLossShare }),
    ...((view === 'guessed' || view === 'text') && { guessTtlMs: settings.guessTtlMs }),
  }
}

function sourceText(workload: Workload): string {
  if (workload.kind === 'file') return `${workload.path}, SHA-256 ${workload.sha256}`
  if (workload.kind === 'log')
    return workload.paths.map((path, i) => `${path}, SHA-256 ${workload.sha256[i]}`).join('; ')
  const { name, requests, perSecond, loop } = workload.generator
  return `generator ${name}, ${requests} requests, ${perSecond} per second at speed 1, ${loop} loop`
}

function profileOf(text: string): ProfileName | InlineProfile {
  const known = PROFILE_NAMES.find(name => name === text)
  return known ?? readProfile(text)
}

async function binOf(spread: string, workload: Workload): Promise<number> {
  if (spread === 'off') return 0
  return spread === 'auto' ? detectBinMs(workload) : durationOf(spread)
}

function tierOf(capacity: SimulateSettings['capacity']): TierName | undefined {
  if (capacity === 'none') return undefined
  return capacity === 'long-context' ? 'longContext' : capacity
}

/** 'WORKER@TIME', checked by the settings. */
function changeOf(text: string): { readonly atMs: number; readonly worker: number } {
  const [worker, time] = text.split('@') as [string, string]
  return { worker: Number(worker), atMs: durationOf(time) }
}

function durationOf(text: string): number {
  const [, amount, unit] = /^([\d.]+)([a-z]*)$/.exec(text)!
  return Number(amount) * UNIT_MS[unit === '' ? 's' : unit!]!
}
