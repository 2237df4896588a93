/**
 * Worker diagnoses: takes a new look at one worker of the fleet, and adds the facts of the directory.
 *
 * Owns   the diagnoses under way: one per worker, whose answer all who asked meanwhile share, and RUNNING_MAX
 *        in all.
 * It uses its own sockets, asks replay sockets only whether they answer, and does not change the directory's
 * facts.
 */

import type { ActorContext } from '@homing/actor'
import type { ModelTwin, RolePeer } from '@homing/doctor'
import { diagnoseWorker, type Finding, isLess, note } from '@homing/doctor'
import type { KeySource, WorkerDefaults } from '@homing/fleet'
import { socketsOf } from '@homing/fleet'
import type { Trust } from '@homing/index'
import { SocketClaims, transportCapability } from '@homing/transport'
import type { DirectoryMessage, WorkerDiagnosis } from './messages.ts'
import type { Worker } from './worker.ts'
import type { WorkerTable } from './worker-table.ts'

const RUNNING_MAX = 4
/** At most six timeouts run one after the other; the caller waits up to a minute. */
const TIMEOUT_MS_MAX = 5000
/** Further ranks are in `known`. */
const KNOWN_FINDINGS_MAX = 8
/** Event sockets are listened to for so long. */
const LISTEN_MS = 500

export interface WorkerDiagnosesOptions {
  readonly context: ActorContext<DirectoryMessage>
  readonly workers: WorkerTable
  /** Longest wait for each answer; at most TIMEOUT_MS_MAX is used. */
  readonly timeoutMs: number
  readonly defaults: WorkerDefaults
  /** Key of engines without their own; undefined: they have none. */
  readonly engineKey: KeySource | undefined
}

export class WorkerDiagnoses {
  readonly #options: WorkerDiagnosesOptions
  readonly #running = new Map<Worker, Promise<WorkerDiagnosis>>()

  constructor(options: WorkerDiagnosesOptions) {
    this.#options = options
  }

  /** 'unknown': there is no such worker. 'busy': as many as may be are looked at. */
  async diagnose(workerId: string): Promise<WorkerDiagnosis | 'unknown' | 'busy'> {
    const worker = this.#options.workers.get(workerId)
    if (worker === undefined) return 'unknown'
    const running = this.#running.get(worker)
    if (running !== undefined) return running
    if (this.#running.size >= RUNNING_MAX) return 'busy'
    const begun = this.#look(worker).finally(() => this.#running.delete(worker))
    this.#running.set(worker, begun)
    return begun
  }

  async #look(worker: Worker): Promise<WorkerDiagnosis> {
    const { context, timeoutMs, defaults, engineKey } = this.#options
    const diagnosis = await diagnoseWorker(worker.spec, {
      transport: context.use(transportCapability),
      clock: context.clock,
      random: context.random,
      timeoutMs: Math.min(timeoutMs, TIMEOUT_MS_MAX),
      listenMs: LISTEN_MS,
      replayDepth: 'end',
      sends: false,
      defaults,
      engineKey,
      claims: this.#claimsOfOthers(worker),
      position: [...this.#options.workers.all()].indexOf(worker),
      twins: this.#twinsBefore(worker),
      peers: this.#peersOf(worker),
    })
    const { state, stateReason } = worker
    const keys = worker.keys.map(({ name, trust, trustReason, trustSinceMs }) => ({
      key: name,
      trust,
      trustReason,
      trustSinceMs,
    }))
    const findings = [...diagnosis.findings, ...knownFindings(worker, diagnosis.trust.reachable)]
    return { ...diagnosis, findings, known: { state, stateReason, keys } }
  }

  /** Of the workers before it, in the order given: as the directory compares them. */
  #twinsBefore(worker: Worker): readonly ModelTwin[] {
    const { workers } = this.#options
    const twins: ModelTwin[] = []
    for (const other of workers.all()) {
      if (other === worker) break
      const { blockSizeTokens, models } = workers.facts(other)
      if (other.outcome === undefined || blockSizeTokens === undefined) continue
      const names = models.map(({ name }) => name)
      twins.push({ id: other.spec.id, models: names, blockSizeTokens: blockSizeTokens.value })
    }
    return twins
  }

  #peersOf(worker: Worker): readonly RolePeer[] {
    const { workers } = this.#options
    return [...workers.all()].flatMap(other => {
      if (other === worker || other.outcome === undefined) return []
      const { role, handover, models } = workers.facts(other)
      const { id, taints } = other.spec
      return { id, models: models.map(({ name }) => name), role, handover, taints }
    })
  }

  /** A copy: a diagnosis may find other sockets than the directory has claimed. */
  #claimsOfOthers(worker: Worker): SocketClaims {
    const claims = new SocketClaims()
    for (const other of this.#options.workers.all()) {
      if (other === worker) continue
      for (const { name, dpRank } of other.keys)
        claims.claim(name, socketsOf(this.#options.workers.eventSource(other, dpRank)))
    }
    return claims
  }
}

/**
 * Findings that a new look cannot show: the router's trust is lower than it could be, or the router sends it
 * no requests.
 */
function knownFindings({ state, stateReason, keys }: Worker, reachable: Trust): readonly Finding[] {
  const findings: Finding[] = []
  if (state !== 'up') findings.push(note('router', `to the router it is ${state}: ${stateReason}`))
  for (const { name, trust, trustReason } of keys) {
    if (!isLess(trust, reachable)) continue
    findings.push(note('router', `the trust of the router in ${name} is ${trust} now: ${trustReason}`))
    if (findings.length === KNOWN_FINDINGS_MAX) break
  }
  return findings
}
