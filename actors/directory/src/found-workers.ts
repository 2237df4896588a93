/**
 * Found workers: has the fleet follow what a source of workers says (packages/discovery): DNS names, or the
 * endpoint slices of Kubernetes.
 *
 *   ready                    ─▶ added; one that was paused, or drained by its source, takes requests again
 *   unready                  ─▶ paused, if it is here; it joins when it is ready for the first time
 *   leaving                  ─▶ drains, if it is here
 *   doubtful                 ─▶ removed when it does not answer its probes
 *   not in the finding       ─▶ removed at once, or drains, as the source wants it
 *   another life or URL      ─▶ removed and added: its cache is another one
 *
 * Findings are compared, not applied in order: only the last one counts, so one that is lost or late costs
 * nothing. A finding does not change a worker of the same id that the operator named. One that the operator
 * removes stays away until its source has not named it once, or names another life.
 * Owns   which workers came from the source, and what was sent away.
 * Bounds `workersMax` workers. FAULTS_TOLD_MAX faults in the log until they change.
 */

import type { ActorContext } from '@homing/actor'
import type { FoundList, FoundWorker, SourceHandler, WorkerSource } from '@homing/discovery'
import { NO_KEYS } from '@homing/fleet'
import type { FleetChanges } from './fleet-changes.ts'
import type { DirectoryMessage, KeptFound } from './messages.ts'

const FAULTS_TOLD_MAX = 100
/** After a finding for which the mailbox had no room. */
const FULL_MAILBOX_MS = 100

interface Here {
  readonly url: string
  readonly life: string
  /** Because its source said so; an operator may have had it drain, too. */
  isDraining: boolean
}

export class FoundWorkers {
  readonly #context: ActorContext<DirectoryMessage>
  readonly #changes: FleetChanges
  readonly #workersMax: number
  readonly #source: WorkerSource
  /** By id of the worker. */
  readonly #here: Map<string, Here>
  /** Sent away by the operator: their lives by id. */
  readonly #refused: Map<string, string>
  /** Faults of the last finding. */
  #faults = new Set<string>()
  #isDue = false
  /** Id of the worker that is removed because its source says so. */
  #removing: string | undefined

  /** `kept`: of an earlier life of the directory, whose workers are here already. */
  constructor(
    context: ActorContext<DirectoryMessage>,
    changes: FleetChanges,
    workersMax: number,
    open: (handler: SourceHandler) => WorkerSource,
    kept: KeptFound = { here: new Map(), refused: new Map() },
  ) {
    this.#context = context
    this.#changes = changes
    this.#workersMax = workersMax
    this.#here = new Map(Array.from(kept.here, ([id, here]) => [id, { ...here }]))
    this.#refused = new Map(kept.refused)
    this.#source = open({
      changed: () => this.#due(),
      failed: reason => context.log.warn({ reason }, 'workers cannot be looked up; those that are here stay'),
      recovered: () => context.log.info({}, 'workers can be looked up again'),
    })
  }

  get kept(): KeptFound {
    return {
      here: new Map(Array.from(this.#here, ([id, here]) => [id, { ...here }])),
      refused: new Map(this.#refused),
    }
  }

  /** A worker that the source brought is here under this id. */
  has(id: string): boolean {
    return this.#here.has(id)
  }

  close(): void {
    this.#source.close()
  }

  /** Has the fleet follow the last finding. */
  look(): void {
    this.#isDue = false
    const finding = this.#source.finding()
    if (finding === undefined) return
    const faults = new Set<string>()
    const tell = (what: string, reason: string): void => {
      const fault = `${what}: ${reason}`
      if (faults.size < FAULTS_TOLD_MAX) faults.add(fault)
      if (!this.#faults.has(fault) && faults.has(fault))
        this.#context.log.warn({ what, reason }, 'what was found cannot be used as a worker')
    }
    for (const { what, reason } of finding.faults) tell(what, reason)
    const before = this.#here.size
    const found = this.#byId(finding, tell)
    if (finding.isWhole) this.#takeAway(found)
    let hasChanged = this.#here.size !== before
    for (const [id, worker] of found) if (this.#follow(id, worker, tell)) hasChanged = true
    this.#faults = faults
    if (hasChanged) this.#changes.keep()
  }

  /**
   * A worker has left the fleet. If this module did not remove it, its drain has ended or the operator did.
   * One whose drain its source began may come back when that names it again.
   */
  left(id: string): void {
    const here = this.#here.get(id)
    if (id === this.#removing || here === undefined) return
    this.#here.delete(id)
    if (!here.isDraining) this.#refused.set(id, here.life)
  }

  #due(): void {
    if (this.#isDue) return
    this.#isDue = true
    const { self } = this.#context
    if (self.tell({ type: 'foundChanged' }) !== 'ok')
      this.#context.schedule(FULL_MAILBOX_MS, { type: 'foundChanged' })
  }

  /** The first of an id counts. */
  #byId({ workers }: FoundList, tell: (what: string, reason: string) => void): Map<string, FoundWorker> {
    const found = new Map<string, FoundWorker>()
    for (const worker of workers) {
      try {
        const id = this.#changes.idOf(worker.url)
        if (!found.has(id)) found.set(id, worker)
      } catch (error) {
        tell(worker.reason, (error as Error).message)
      }
    }
    return found
  }

  #takeAway(found: ReadonlyMap<string, FoundWorker>): void {
    for (const [id, life] of [...this.#refused]) {
      const worker = found.get(id)
      if (worker === undefined || worker.life !== life) this.#refused.delete(id)
    }
    for (const [id, here] of [...this.#here]) {
      if (found.has(id)) continue
      if (this.#source.absence === 'leaves at once') this.#remove(id, 'it is not there any more')
      else this.#drain(id, here)
    }
  }

  /** True: a worker has come or gone. */
  #follow(id: string, worker: FoundWorker, tell: (what: string, reason: string) => void): boolean {
    const { url, life, state, reason } = worker
    let here = this.#here.get(id)
    const isOther = here !== undefined && (here.url !== url || here.life !== life)
    if (isOther && state === 'ready') {
      this.#remove(id, here!.life === life ? 'its parameters have changed' : 'another one has its address')
      here = undefined
    }
    if (here === undefined) return (state === 'ready' && this.#add(id, worker, tell)) || isOther
    switch (state) {
      case 'ready':
        this.#changes.pause(id, undefined)
        if (here.isDraining) {
          here.isDraining = false
          this.#changes.resume(id)
        }
        return false
      case 'unready':
        this.#changes.pause(id, reason)
        return false
      case 'leaving':
        this.#drain(id, here)
        return false
      case 'doubtful':
        if (this.#changes.answers(id) !== false) return false
        this.#remove(id, reason)
        return true
    }
  }

  #add(
    id: string,
    { url, life, reason }: FoundWorker,
    tell: (what: string, reason: string) => void,
  ): boolean {
    if (this.#refused.get(id) === life) return false
    // The operator's, or one that has registered itself.
    if (this.#changes.has(id)) return false
    if (this.#here.size >= this.#workersMax) {
      tell(reason, `there are ${this.#here.size} workers, as many as worker slots: raise --worker-slots-max`)
      return false
    }
    // Known before it joins, so that its key is not one of a worker that the operator named.
    this.#here.set(id, { url, life, isDraining: false })
    const added = this.#changes.add(url, NO_KEYS)
    if ('id' in added) return true
    this.#here.delete(id)
    tell(reason, added.message)
    return false
  }

  #drain(id: string, here: Here): void {
    if (here.isDraining || this.#changes.isDraining(id)) return
    here.isDraining = true
    this.#changes.drain(id)
  }

  #remove(id: string, reason: string): void {
    this.#here.delete(id)
    this.#removing = id
    this.#changes.remove(id, reason)
    this.#removing = undefined
  }
}
