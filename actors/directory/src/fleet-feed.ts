/**
 * Fleet feed: makes the snapshots of the fleet and hands them to its subscribers.
 *
 * Owns   the last `Fleet`, the subscribers, and the asks that wait until every worker has been probed.
 * Order  a subscriber sees the versions in order; `version` grows by one per change. All changes within one
 *        turn of messages become one snapshot, and a record that has not changed is not sent again.
 * Full   a subscriber whose mailbox refuses a version is behind: it is sent the last version every RESEND_MS
 *        until it takes it, and misses the versions between. It is still told of workers that left overdue,
 *        the last OVERDUE_MAX.
 * Bounds SUBSCRIBERS_MAX and WAITERS_MAX; beyond it the oldest waiter is dropped; its ask ends at its
 *        deadline.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import type {
  EngineTokenized,
  Fleet,
  FleetMessage,
  FleetThresholds,
  WorkerKeyRecord,
  WorkerRecord,
} from '@homing/fleet'
import { type RequestPlane, routeTo, sleepReason } from '@homing/fleet'
import { type BusyThresholds, hasThreshold, mergedThresholds } from '@homing/load'
import type { DirectoryMessage, KeeperMessage } from './messages.ts'
import type { Key, Worker } from './worker.ts'
import type { WorkerTable } from './worker-table.ts'

const DRAINING = 'gets no new requests, and leaves with its last one'
const SUBSCRIBERS_MAX = 1024
const WAITERS_MAX = 1024
const RESEND_MS = 100
const OVERDUE_MAX = 1024
/** Most models with own thresholds; beyond it, the longest unchanged one gets the common ones again. */
const THRESHOLDS_MAX = 1024

interface Subscriber {
  readonly ref: ActorRef<FleetMessage>
  /** It has refused the last fleet. */
  isBehind: boolean
  /** As in its next message. */
  overdue: readonly string[]
}

/** Busy thresholds at its begin, and who keeps what is set from then on. */
export interface FeedThresholds extends FleetThresholds {
  readonly keeper: ActorRef<KeeperMessage> | undefined
  /** Engines that name no API key have one all the same. */
  readonly hasEngineKey: boolean
  readonly requestPlane: RequestPlane | undefined
}

export class FleetFeed {
  readonly #context: ActorContext<DirectoryMessage>
  readonly #workers: WorkerTable
  readonly #subscribers = new Map<string, Subscriber>()
  #willResend = false
  #waiters: ((fleet: Fleet) => void)[] = []
  #fleet: Fleet = { version: 0, workers: [] }
  /** Workers whose record may differ from the one published. */
  readonly #changed = new Set<Worker>()
  #willPublish = false
  /** A worker has left since the last fleet. */
  #hasLost = false
  /** Of those, the ones whose drain took too long. */
  #overdue: readonly string[] = []
  /** The last record of each worker, and its text. */
  #thresholds: FleetThresholds
  readonly #keeper: FeedThresholds['keeper']
  readonly #hasEngineKey: boolean
  readonly #requestPlane: RequestPlane | undefined
  #hasNewThresholds = false
  #engineTokenized: readonly EngineTokenized[] = []
  #hasNewTokenized = false
  readonly #published = new Map<Worker, { readonly text: string; readonly record: WorkerRecord }>()

  constructor(
    context: ActorContext<DirectoryMessage>,
    workers: WorkerTable,
    { others, byModel, keeper, hasEngineKey, requestPlane }: FeedThresholds,
  ) {
    this.#context = context
    this.#workers = workers
    this.#thresholds = { others, byModel }
    this.#keeper = keeper
    this.#hasEngineKey = hasEngineKey
    this.#requestPlane = requestPlane
  }

  /** Called before each fleet: may touch workers. */
  beforePublish: () => void = () => {}

  get fleet(): Fleet {
    return this.#fleet
  }

  subscribe(ref: ActorRef<FleetMessage>): void {
    let subscriber = this.#subscribers.get(ref.key)
    if (subscriber === undefined) {
      if (this.#subscribers.size >= SUBSCRIBERS_MAX) {
        this.#context.log.error(
          { subscriber: ref.name, SUBSCRIBERS_MAX },
          'too many subscribers of the fleet',
        )
        return
      }
      subscriber = { ref, isBehind: false, overdue: [] }
      this.#subscribers.set(ref.key, subscriber)
      this.#context.watch(ref)
    }
    this.#send(subscriber)
  }

  /** False: it was none. */
  unsubscribe(key: string): boolean {
    return this.#subscribers.delete(key)
  }

  /** Answers when every worker was probed once, up or down; after `withinMs` with what is known by then. */
  whenProbed(withinMs: number, reply: (fleet: Fleet) => void): void {
    this.#context.schedule(withinMs, { type: 'waitersDue' })
    if (this.#waiters.length >= WAITERS_MAX) this.#waiters.shift()
    this.#waiters.push(reply)
    // A fleet that is about to be published may be the first that has seen the last probe.
    if (!this.#willPublish) this.#answerWaiters()
  }

  /**
   * The record of this worker may have changed: publishes once what waits in the mailbox has been looked at
   * too.
   */
  touch(worker: Worker): void {
    // A key of one that has left may still have to end.
    if (!this.#workers.has(worker)) return
    this.#changed.add(worker)
    this.publishSoon()
  }

  /** Once what waits in the mailbox has been looked at, too. */
  publishSoon(): void {
    if (this.#willPublish) return
    this.#willPublish = true
    if (this.#context.self.tell({ type: 'publish' }) !== 'ok') this.publish()
  }

  /** The worker has left the table. `isOverdue`: its drain took too long. */
  left(worker: Worker, isOverdue: boolean): void {
    if (isOverdue) this.#overdue = [...this.#overdue, worker.spec.id]
    this.#published.delete(worker)
    this.#changed.delete(worker)
    this.#hasLost = true
    this.publishSoon()
  }

  /**
   * Undefined: no worker serves the model. Those of models that are gone are kept while there is room for
   * them.
   */
  setBusyThresholds(model: string, change: Partial<BusyThresholds>): BusyThresholds | undefined {
    if (!this.#fleet.workers.some(({ models }) => models.some(({ name }) => name === model))) return undefined
    const { others, byModel } = this.#thresholds
    const merged = mergedThresholds(byModel.get(model) ?? others, change)
    const next = new Map(byModel)
    next.delete(model)
    if (next.size >= THRESHOLDS_MAX) next.delete(next.keys().next().value!)
    this.#thresholds = { others, byModel: next.set(model, merged) }
    this.#hasNewThresholds = true
    if (this.#keeper?.tell({ type: 'keepBusyThresholds', byModel: next }) === 'full')
      this.#context.log.warn({ model }, 'busy thresholds are not kept over a restart of the directory')
    this.publish()
    return merged
  }

  setEngineTokenized(engineTokenized: readonly EngineTokenized[]): void {
    this.#engineTokenized = engineTokenized
    this.#hasNewTokenized = true
    this.publishSoon()
  }

  publish(): void {
    // What changes by that goes along.
    this.#willPublish = true
    this.beforePublish()
    this.#willPublish = false
    let hasChanged =
      this.#fleet.version === 0 || this.#hasNewThresholds || this.#hasNewTokenized || this.#hasLost
    this.#hasLost = false
    this.#hasNewTokenized = false
    for (const worker of this.#changed) {
      const record = this.#recordOf(worker)
      const text = JSON.stringify(record)
      if (this.#published.get(worker)?.text === text) continue
      hasChanged = true
      this.#published.set(worker, { text, record })
    }
    this.#changed.clear()
    if (hasChanged) {
      const workers = Array.from(this.#workers.all(), worker => this.#published.get(worker)!.record)
      this.#hasNewThresholds = false
      const { others, byModel } = this.#thresholds
      const hasThresholds = hasThreshold(others) || byModel.size > 0
      const busyThresholds = hasThresholds ? this.#thresholds : undefined
      const engineTokenized = this.#engineTokenized
      this.#fleet = { version: this.#fleet.version + 1, workers, busyThresholds, engineTokenized }
      for (const subscriber of this.#subscribers.values()) {
        subscriber.overdue = [...subscriber.overdue, ...this.#overdue].slice(-OVERDUE_MAX)
        this.#send(subscriber)
      }
      this.#overdue = []
    }
    this.#answerWaiters()
  }

  /** Sends the last fleet to subscribers whose mailbox refused it. */
  resend(): void {
    this.#willResend = false
    for (const subscriber of this.#subscribers.values()) if (subscriber.isBehind) this.#send(subscriber)
  }

  #send(subscriber: Subscriber): void {
    const { overdue } = subscriber
    const late = overdue.length === 0 ? {} : { overdue }
    subscriber.isBehind = subscriber.ref.tell({ type: 'fleet', fleet: this.#fleet, ...late }) === 'full'
    if (!subscriber.isBehind) subscriber.overdue = []
    if (!subscriber.isBehind || this.#willResend) return
    this.#willResend = true
    this.#context.schedule(RESEND_MS, { type: 'resend' })
  }

  #answerWaiters(): void {
    for (const worker of this.#workers.all()) if (!worker.wasProbed) return
    this.#answerAll()
  }

  waitersDue(): void {
    if (this.#waiters.length === 0) return
    const unprobed = [...this.#workers.all()].filter(({ wasProbed }) => !wasProbed)
    // The fleet that has seen the last probe is about to be published.
    if (unprobed.length === 0) return
    this.#context.log.warn(
      { workers: unprobed.length, first: unprobed[0]?.spec.id },
      'workers have not been reached yet: they join when they answer',
    )
    this.#answerAll()
  }

  #answerAll(): void {
    const waiters = this.#waiters
    this.#waiters = []
    for (const reply of waiters) reply(this.#fleet)
  }

  #recordOf(worker: Worker): WorkerRecord {
    const { spec, joinedMs } = worker
    const { id, instanceId, origin, taints } = spec
    return {
      id,
      instanceId,
      joinedMs,
      origin,
      calledAt: routeTo(spec, this.#requestPlane)?.endpoint,
      ...stateOf(worker),
      unansweredSinceMs: worker.unansweredSinceMs,
      ...(worker.isDownByAnswer ? { isDownByAnswer: true } : {}),
      ...this.#workers.facts(worker),
      taints,
      usesKey: this.#hasEngineKey || spec.key !== undefined,
      promptsEpoch: worker.promptsEpoch,
      processStartSeconds: worker.outcome?.processStartSeconds,
      keys: worker.keys.map(key => keyRecordOf(key, this.#workers)),
    }
  }
}

function stateOf(worker: Worker): Pick<WorkerRecord, 'state' | 'stateReason' | 'isDraining' | 'isOnTrial'> {
  const { state, stateReason, drain, isOnTrial } = worker
  const pause = worker.pause ?? sleepReason(worker.outcome?.sleep)
  if (drain !== undefined && state === 'up')
    return { state: 'draining', stateReason: DRAINING, isDraining: true }
  if (drain !== undefined) return { state, stateReason: `${stateReason}; it drains`, isDraining: true }
  if (pause !== undefined && state === 'up') return { state: 'paused', stateReason: pause }
  if (isOnTrial) return { state, stateReason, isOnTrial }
  return { state, stateReason }
}

function keyRecordOf(key: Key, workers: WorkerTable): WorkerKeyRecord {
  const { worker, dpRank, workerSlot, shard, trust, trustReason, trustSinceMs, epoch } = key
  const source = workers.eventSource(worker, dpRank)
  return {
    key: key.name,
    workerSlot,
    dpRank,
    eventsEndpoint: source?.endpoint,
    replayEndpoint: source?.replayEndpoint,
    topic: source?.topic ?? '',
    shard,
    trust,
    trustReason,
    trustSinceMs,
    epoch,
  }
}
