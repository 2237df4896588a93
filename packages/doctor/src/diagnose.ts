/**
 * Diagnose: asks a worker all questions that a router would ask, checks its sockets, and reports findings.
 *
 *   probe            the directory's own (probe.ts), each question recorded; all workers, before the rest
 *   sockets          per rank, all at the same time: subscribe, ask for a replay, listen for a while
 *   own request      only if asked for
 *   findings         from all that, pure
 *
 * It does not change the worker, except that its own request puts two blocks into the cache. Every wait is
 * bounded: in total at most six timeouts plus the listening time, and three more timeouts with its own
 * request.
 */

import type { EventBroker, EventSource, ProbeOutcome, WorkerFacts, WorkerSpec } from '@homing/fleet'
import {
  eventSourceOf,
  factsOf,
  handoverOf,
  hostOf,
  openDoor,
  probeWorker,
  type ReachedOutcome,
  roleOf,
  socketsOf,
} from '@homing/fleet'
import { isSameSocket, SocketClaims } from '@homing/transport'
import { compareChat } from './compare-chat.ts'
import type { DiagnoseOptions } from './diagnose-options.ts'
import { type Diagnosis, type Finding, trustOf, verdictOf } from './diagnosis.ts'
import { doorsOf, flagsOf, plannedPorts } from './engine-flags.ts'
import { eventFindings } from './event-findings.ts'
import { type ModelTwin, RANKS_CHECKED_MAX, type ReachedEvidence, type RolePeer } from './evidence.ts'
import { factFindings } from './fact-findings.ts'
import { type OwnRequest, sendOwnRequest } from './own-request.ts'
import { checkRank } from './rank-check.ts'
import { RecordedHttp } from './recorded-http.ts'
import { requestFindings } from './request-findings.ts'
import { roleFindings } from './role-findings.ts'
import { oneLine, socketSteps, stepOf } from './step-texts.ts'
import { unreachedFinding } from './unreached-findings.ts'

const AT_ONE_TIME_MAX = 16

/**
 * In the order given. All workers are probed before any sockets are checked, so that two workers with the
 * same socket both get the finding.
 */
export async function diagnoseWorkers(
  specs: readonly WorkerSpec[],
  options: DiagnoseOptions,
): Promise<readonly Diagnosis[]> {
  const probed = await eachOf(specs, spec => probe(spec, options))
  const claims = options.claims ?? new SocketClaims()
  const twins = [...(options.twins ?? []), ...probed.flatMap(one => twinOf(one, options) ?? [])]
  for (const { spec, sources } of probed) {
    for (const source of sources) claims.claim(keyOf(spec, source), socketsOf(source))
  }
  return eachOf(probed, one => {
    const index = probed.indexOf(one)
    const isAgain = probed.findIndex(({ spec }) => isSamePlace(spec, one.spec)) < index
    const position = (options.position ?? 0) + index
    const others = probed.flatMap(other => (other === one ? [] : (peerOf(other, options) ?? [])))
    const peers = [...(options.peers ?? []), ...others]
    return diagnose(one, { claims, twins, peers, isAgain, position }, options)
  })
}

/** Some at a time, in order: each takes sockets. */
async function eachOf<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<readonly R[]> {
  const results: R[] = []
  for (let from = 0; from < items.length; from += AT_ONE_TIME_MAX) {
    results.push(...(await Promise.all(items.slice(from, from + AT_ONE_TIME_MAX).map(work))))
  }
  return results
}

/** Facts of other workers that matter for one worker. */
interface Neighbours {
  readonly claims: SocketClaims
  readonly twins: readonly ModelTwin[]
  readonly peers: readonly RolePeer[]
  readonly isAgain: boolean
  readonly position: number
}

/** 'localhost' and '127.0.0.1' are one host. */
function isSamePlace(spec: WorkerSpec, other: WorkerSpec): boolean {
  return isSameSocket(`tcp://${spec.id}`, `tcp://${other.id}`)
}

/** Never rejects for what the worker does. */
export async function diagnoseWorker(spec: WorkerSpec, options: DiagnoseOptions): Promise<Diagnosis> {
  const [diagnosis] = await diagnoseWorkers([spec], options)
  return diagnosis!
}

interface Probed {
  readonly spec: WorkerSpec
  readonly http: RecordedHttp
  readonly outcome: ProbeOutcome
  /** Sources of the first RANKS_CHECKED_MAX ranks. */
  readonly sources: readonly EventSource[]
}

async function probe(
  spec: WorkerSpec,
  { transport, clock, timeoutMs, defaults, engineKey, tellsKeyFaults = false }: DiagnoseOptions,
): Promise<Probed> {
  const http = new RecordedHttp(transport.http, clock)
  const key = spec.key ?? engineKey
  const keyFault = openDoor(transport.http, spec.origin, key)
  const outcome: ProbeOutcome =
    keyFault === undefined
      ? await probeWorker(http, spec.origin, timeoutMs, key !== undefined)
      : { reached: false, reason: tellsKeyFaults ? `its API key: ${keyFault.fault}` : keyFault.reason }
  const ranks = outcome.reached ? factsOf(spec, outcome, undefined, defaults).ranks.value : 0
  return {
    spec,
    http,
    outcome,
    sources: outcome.reached ? sourcesOf(spec, outcome, ranks, defaults.broker) : [],
  }
}

/** Undefined: its block size is not known. */
function twinOf({ spec, outcome }: Probed, { defaults }: DiagnoseOptions): ModelTwin | undefined {
  if (!outcome.reached) return undefined
  const { blockSizeTokens, models } = factsOf(spec, outcome, undefined, defaults)
  if (blockSizeTokens === undefined) return undefined
  return {
    id: spec.id,
    models: models.map(({ name }) => name),
    blockSizeTokens: blockSizeTokens.value,
  }
}

/** Undefined: it was not reached. */
function peerOf({ spec, outcome }: Probed, { defaults }: DiagnoseOptions): RolePeer | undefined {
  if (!outcome.reached) return undefined
  const { role, handover, models } = factsOf(spec, outcome, undefined, defaults)
  return { id: spec.id, models: models.map(({ name }) => name), role, handover, taints: spec.taints }
}

async function diagnose(
  probed: Probed,
  neighbours: Neighbours,
  options: DiagnoseOptions,
): Promise<Diagnosis> {
  const { spec, http, outcome } = probed
  if (!outcome.reached) {
    const finding = unreachedFinding(spec, http.asked[0], outcome.reason, options)
    return diagnosisOf(spec, http, undefined, [finding])
  }
  const evidence = await gather(probed, outcome, neighbours, options)
  const findings = [
    ...factFindings(evidence),
    ...roleFindings(evidence),
    ...eventFindings(evidence),
    ...requestFindings(evidence),
  ]
  return diagnosisOf(spec, http, evidence, findings)
}

async function gather(
  { spec, http, sources }: Probed,
  outcome: ReachedOutcome,
  { claims, twins, peers, isAgain, position }: Neighbours,
  options: DiagnoseOptions,
): Promise<ReachedEvidence> {
  const { clock, timeoutMs } = options
  const facts = factsOf(spec, outcome, undefined, options.defaults)
  const clashes = sources.flatMap(source => claims.clashOf(keyOf(spec, source)) ?? [])
  const names = facts.models.map(({ name }) => name)
  const first = twins.find(({ models }) => models.some(name => names.includes(name)))
  const tokenizer = await options.tokenizerOf?.(outcome)
  const chat =
    tokenizer && outcome.canTokenize
      ? await compareChat(http, spec, facts.models[0], tokenizer, timeoutMs)
      : undefined
  const startMs = clock.nowMs()
  const ranks = await Promise.all(sources.map(source => checkRank(source, options)))
  let own: OwnRequest | undefined
  try {
    const watches = ranks.flatMap(({ watch }) => watch ?? [])
    const [model] = facts.models
    if (options.sends && model !== undefined && !takesNoneAlone(facts)) {
      const { origin } = spec
      const { blockSizeTokens } = outcome
      const encode = tokenizer?.encode
      const isOffer = roleOf(facts) === 'prefill'
      own = await sendOwnRequest({
        ...options,
        http,
        origin,
        model,
        blockSizeTokens,
        watches,
        encode,
        isOffer,
      })
    } else {
      await Promise.all(
        watches.map(watch => watch.seenEnough(({ batches }) => batches > 0, options.listenMs)),
      )
    }
  } finally {
    for (const { watch } of ranks) watch?.close()
  }
  return {
    spec,
    outcome,
    facts,
    asked: http.asked,
    timeoutMs,
    ranks,
    listenedMs: clock.nowMs() - startMs,
    clashes,
    isAgain,
    position,
    self: { role: facts.role, handover: facts.handover, taints: spec.taints },
    peers: peers.filter(({ models }) => models.some(name => names.includes(name))),
    twin: first?.id === spec.id ? undefined : first,
    own,
    needsPartner: options.sends && takesNoneAlone(facts),
    tokenizer: tokenizer?.name,
    chat,
  }
}

/** An engine that answers no request unless another one computes or takes over its prompt. */
function takesNoneAlone(facts: WorkerFacts): boolean {
  return roleOf(facts) !== 'both' && handoverOf(facts) === 'bootstrap'
}

function sourcesOf(
  spec: WorkerSpec,
  outcome: ReachedOutcome,
  ranks: number,
  broker: EventBroker | undefined,
): readonly EventSource[] {
  const sources: EventSource[] = []
  for (let dpRank = 0; dpRank < Math.min(ranks, RANKS_CHECKED_MAX); dpRank++) {
    const source = eventSourceOf(spec, outcome, dpRank, broker)
    if (source !== undefined) sources.push(source)
  }
  return sources
}

/** The name of a worker key. */
function keyOf({ id }: WorkerSpec, { dpRank }: EventSource): string {
  return `${id}/${dpRank}`
}

function diagnosisOf(
  spec: WorkerSpec,
  http: RecordedHttp,
  evidence: ReachedEvidence | undefined,
  findings: readonly Finding[],
): Diagnosis {
  const host = hostOf(spec.origin)
  const trust = trustOf(findings)
  const planned = evidence === undefined ? undefined : plannedPorts(evidence, findings)
  return {
    worker: spec.id,
    origin: spec.origin,
    engine: evidence?.outcome.engine ?? 'unknown',
    engineVersion: oneLine(evidence?.outcome.engineVersion ?? ''),
    verdict: verdictOf(findings),
    trust: { ...trust, reason: oneLine(trust.reason) },
    steps: [
      ...http.asked.map(asked => stepOf(asked, host)),
      ...(evidence?.ranks ?? []).flatMap(rank => socketSteps(rank, evidence!.timeoutMs)),
    ],
    findings: findings.map(finding => ({
      ...finding,
      text: oneLine(finding.text),
      remedy: finding.remedy === undefined ? undefined : oneLine(finding.remedy),
    })),
    engineFlags: evidence === undefined ? undefined : flagsOf(evidence, planned),
    doors: doorsOf(spec, evidence, planned),
  }
}
