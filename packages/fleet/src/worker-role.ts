/**
 * Worker role: which part of a request a worker takes, how its engine hands a computed prompt over, and
 * whether a model has both kinds of workers (docs/disaggregation.md).
 *
 *   prefill   computes prompts and hands their blocks over; takes nothing else
 *   decode    takes requests, after a hand-over or whole
 *   both      the default: takes requests whole, and goes on after a hand-over
 *
 *   kv_transfer   vLLM: the answer of the prefill leg says where its blocks are; the decode leg is told
 *   bootstrap     SGLang: both legs are sent at once, and meet at host, port and room
 */

import type { Bootstrap, Fleet, Sourced, WorkerRecord } from './fleet.ts'
import type { Handover, WorkerRole } from './leg-names.ts'
import type { ReachedOutcome } from './probe-outcome.ts'
import type { WorkerSpec } from './worker-spec.ts'
import { hostOf } from './worker-spec.ts'

/** SGLang's default of --disaggregation-bootstrap-port. */
const BOOTSTRAP_PORT_DEFAULT = 8998

/** What a worker takes, and how; a part of its facts. */
export interface LegFacts {
  readonly role: Sourced<WorkerRole>
  readonly handover: Sourced<Handover>
  /** Undefined: it is no prefill worker that is found by a bootstrap. */
  readonly bootstrap: Bootstrap | undefined
}

/** What decides whether one worker hands over to another. */
export type LegWorker = Pick<WorkerRecord, 'role' | 'handover' | 'taints'>

export function legFactsOf(spec: WorkerSpec, outcome: ReachedOutcome | undefined): LegFacts {
  const probed = outcome?.legs
  const role: Sourced<WorkerRole> =
    spec.role !== undefined
      ? { value: spec.role, source: 'given' }
      : probed?.role !== undefined
        ? { value: probed.role, source: 'probed' }
        : { value: 'both', source: 'default' }
  const handover: Sourced<Handover> =
    spec.handover !== undefined
      ? { value: spec.handover, source: 'given' }
      : outcome?.engine === 'sglang' || probed !== undefined
        ? { value: 'bootstrap', source: 'probed' }
        : { value: 'kv_transfer', source: outcome?.engine === 'vllm' ? 'probed' : 'default' }
  const isFound = role.value === 'prefill' && handover.value === 'bootstrap'
  const port: Sourced<number> =
    spec.bootstrapPort !== undefined
      ? { value: spec.bootstrapPort, source: 'given' }
      : probed?.bootstrapPort !== undefined
        ? { value: probed.bootstrapPort, source: 'probed' }
        : { value: BOOTSTRAP_PORT_DEFAULT, source: 'default' }
  return {
    role,
    handover,
    bootstrap: isFound ? { host: spec.bootstrapHost ?? hostOf(spec.origin), port } : undefined,
  }
}

export function roleOf({ role }: Pick<WorkerRecord, 'role'>): WorkerRole {
  return role?.value ?? 'both'
}

export function handoverOf({ handover }: Pick<WorkerRecord, 'handover'>): Handover {
  return handover?.value ?? 'kv_transfer'
}

/**
 * Taints of this beginning say where a worker is: blocks are handed over only between workers that share
 * them, `topology/zone=a` for one.
 */
const TOPOLOGY = /^(?:dynamo\.)?topology\//

/** Taints that a worker must have to take over from this one. */
export function topologyOf({ taints }: Pick<WorkerRecord, 'taints'>): readonly string[] {
  return taints.filter(taint => TOPOLOGY.test(taint))
}

/** Whether blocks of a prefill worker can be handed over to the other. */
export function canHandOver(from: LegWorker, to: LegWorker): boolean {
  return takesOver(to, handoverOf(from)) && topologyOf(from).every(taint => to.taints.includes(taint))
}

/**
 * Whether a worker goes on with prompts that come to it in this way. An engine of SGLang that was not started
 * for decode would compute the prompt itself, and leave the prefill worker waiting.
 */
export function takesOver(worker: Omit<LegWorker, 'taints'>, way: Handover): boolean {
  const role = roleOf(worker)
  if (role === 'prefill' || handoverOf(worker) !== way) return false
  return way === 'kv_transfer' || role === 'decode'
}

/** Whether a worker takes requests whole. An engine of SGLang for decode takes none without a hand-over. */
export function takesWhole(worker: WorkerRecord): boolean {
  const role = roleOf(worker)
  return role === 'both' || (role === 'decode' && handoverOf(worker) === 'kv_transfer')
}

/**
 * Of a model with workers that take a part of a request only: `active`, prefill and decode are apart;
 * `pending`, workers of one kind are not there yet; `unavailable`, they are there, and those of one kind are
 * all down or leaving.
 */
export type PrefillState = 'pending' | 'active' | 'unavailable'

/** By model; a model whose workers are all of the role `both` is not in it. */
export function prefillStates({ workers }: Fleet): ReadonlyMap<string, PrefillState> {
  const states = new Map<string, PrefillState>()
  const isApart = workers.some(worker => roleOf(worker) !== 'both')
  if (!isApart) return states
  const models = new Set(
    workers.flatMap(worker => (roleOf(worker) === 'both' ? [] : worker.models.map(({ name }) => name))),
  )
  for (const model of models) {
    const serving = workers.filter(({ models: own }) => own.some(({ name }) => name === model))
    const prefill = serving.filter(worker => roleOf(worker) === 'prefill')
    const others = serving.filter(worker => roleOf(worker) !== 'prefill')
    const isUp = ({ state }: WorkerRecord): boolean => state === 'up'
    const isActive = prefill.some(from => isUp(from) && others.some(to => isUp(to) && canHandOver(from, to)))
    const isPending = prefill.length === 0 || others.length === 0
    states.set(model, isActive ? 'active' : isPending ? 'pending' : 'unavailable')
  }
  return states
}
