/**
 * Worker trials: how long a worker that joined at run time gets only a trial share of the requests.
 *
 *   joined ──▶ first answer ──its cache is known, or cannot be──▶ over
 *                    │ TRIAL_MS later, unless a history is being replayed
 *                    │ TRIAL_MS_MAX later, whatever
 *
 * Owns `isOnTrial` of every worker.
 */

import type { ActorContext } from '@homing/actor'
import { owesEventSources } from '@homing/fleet'
import type { DirectoryMessage, TrialTime } from './messages.ts'
import type { Key, Worker } from './worker.ts'
import { isSettled } from './worker-announcements.ts'

/** Trial time of a worker whose keys or event sockets are not there yet. */
const TRIAL_MS = 3000
/** Longer than most replays: of 100,000 batches some seconds. */
const TRIAL_MS_MAX = 30_000

export class WorkerTrials {
  readonly #context: ActorContext<DirectoryMessage>
  readonly #changed: (worker: Worker) => void
  /** The part of the trial time that is over, of workers on trial that have answered. */
  readonly #over = new WeakMap<Worker, TrialTime>()

  /** `changed`: the record of a worker may have changed. */
  constructor(context: ActorContext<DirectoryMessage>, changed: (worker: Worker) => void) {
    this.#context = context
    this.#changed = changed
  }

  answered(worker: Worker): void {
    if (!worker.isOnTrial) return
    if (!this.#over.has(worker)) {
      this.#over.set(worker, 'none')
      const message = { type: 'trialDue', workerId: worker.spec.id, joinedMs: worker.joinedMs } as const
      this.#context.schedule(TRIAL_MS, { ...message, over: 'first' })
      this.#context.schedule(TRIAL_MS_MAX, { ...message, over: 'all' })
    }
    this.look(worker)
  }

  due(worker: Worker, over: TrialTime): void {
    this.#over.set(worker, over)
    this.look(worker)
  }

  /** Something is known that was not, or it is time. */
  look(worker: Worker): void {
    const over = this.#over.get(worker)
    if (!worker.isOnTrial || over === undefined) return
    const mayGoOn = over === 'none' || (over === 'first' && worker.keys.some(isCatchingUp))
    if (mayGoOn && !isKnown(worker)) return
    worker.isOnTrial = false
    this.#changed(worker)
  }
}

/**
 * Whether its cache is known as well as it can be. Not yet if its keys wait for keys of an earlier life to
 * end, if its event endpoints may still come, or while a history is replayed.
 */
function isKnown({ spec, outcome, keys }: Worker): boolean {
  if (outcome !== undefined && owesEventSources(spec, outcome)) return false
  return keys.length > 0 && keys.every(key => !isCatchingUp(key) && isSettled(key))
}

function isCatchingUp({ phase, heard }: Key): boolean {
  return phase === 'running' && heard.isCatchingUp === true
}
