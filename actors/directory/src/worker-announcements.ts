/**
 * Worker announcements: one log line about each worker when it has answered for the first time; a
 * warning if something is missing that would make its cache known.
 *
 * The line waits until the trust in all keys of the worker has settled, at most ANNOUNCE_MS_MAX.
 * Owns `wasAnnounced` of every worker.
 */

import type { ActorContext } from '@homing/actor'
import { missingOf } from '@homing/fleet'
import type { DirectoryMessage } from './messages.ts'
import type { Key, Worker } from './worker.ts'
import type { WorkerTable } from './worker-table.ts'

const ANNOUNCE_MS_MAX = 3000

export class WorkerAnnouncements {
  readonly #context: ActorContext<DirectoryMessage>
  readonly #workers: WorkerTable

  constructor(context: ActorContext<DirectoryMessage>, workers: WorkerTable) {
    this.#context = context
    this.#workers = workers
  }

  /** The worker answered: it is announced now or when it is time. */
  announceSoon(worker: Worker): void {
    if (worker.wasAnnounced || this.tryAnnounce(worker)) return
    this.#context.schedule(ANNOUNCE_MS_MAX, {
      type: 'announce',
      workerId: worker.spec.id,
      joinedMs: worker.joinedMs,
    })
  }

  /** False while the trust has not settled. */
  tryAnnounce(worker: Worker): boolean {
    if (!worker.keys.every(isSettled)) return false
    this.announce(worker)
    return true
  }

  announce(worker: Worker): void {
    if (worker.outcome === undefined || worker.wasAnnounced) return
    worker.wasAnnounced = true
    const facts = this.#workers.facts(worker)
    const first = worker.keys[0]
    const keys = worker.keys.map(({ dpRank }) => {
      const source = this.#workers.eventSource(worker, dpRank)
      return { dpRank, eventsEndpoint: source?.endpoint, replayEndpoint: source?.replayEndpoint }
    })
    const missing = missingOf({ ...facts, origin: worker.spec.origin, keys })
    this.#context.log[missing.length === 0 ? 'info' : 'warn'](
      {
        worker: worker.spec.id,
        engine: `${facts.engine} ${facts.engineVersion}`.trim(),
        models: facts.models.map(model => model.name),
        blockSizeTokens: facts.blockSizeTokens?.value,
        ranks: facts.ranks.value,
        events: keys[0]?.eventsEndpoint,
        trust: first?.trust,
        trustReason: first?.trustReason,
        missing,
      },
      'worker found',
    )
  }
}

/** No change of this key's trust is expected soon. */
export function isSettled(key: Key): boolean {
  return key.phase !== 'running' || key.heard.trust !== 'none'
}
