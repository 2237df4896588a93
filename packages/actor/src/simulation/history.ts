/**
 * History: the record of a run, simulated or not, for the checkers (checkers.ts). Actors and tests record
 * what they do and see; a simulation adds what its links and threads do.
 *
 * An actor is known by a name that is unique in the run, a tell by its sender, its receiver and a number that
 * grows for each pair of them.
 */

import type { Frame } from '../links/link.ts'
import type { FaultName, LossCause } from './faults.ts'
import type { SimulationObserver } from './simulation-host.ts'

/** Which tell. */
export interface TellTag {
  readonly from: string
  readonly to: string
  readonly number: number
}

export type HistoryEvent =
  /** `uid`: the life of the sender's thread. */
  | ({ readonly type: 'sent'; readonly uid: number } & TellTag)
  /** It left for another thread. */
  | ({ readonly type: 'wired' } & TellTag)
  /** The life `uid` of another thread got it. */
  | ({ readonly type: 'taken'; readonly uid: number } & TellTag)
  /** An arm was given it. */
  | ({ readonly type: 'handled' } & TellTag)
  /** It will not be handled, and this is why. */
  | ({ readonly type: 'lost'; readonly cause: LossCause | 'refused' | 'overflow' } & TellTag)
  | ({ readonly type: 'duplicated' } & TellTag)
  /** `uid`: the life of the asker's thread. */
  | { readonly type: 'asked'; readonly ask: number; readonly dueMs: number; readonly uid: number }
  | { readonly type: 'settled'; readonly ask: number; readonly outcome: string }
  | { readonly type: 'watched'; readonly watch: number; readonly watcher: string; readonly watched: string }
  | { readonly type: 'terminated'; readonly watch: number; readonly reason: string }
  /** An instance runs its setup in the life `uid` of a thread. */
  | {
      readonly type: 'started'
      readonly actor: string
      readonly parent: string | undefined
      readonly uid: number
    }
  /** It fails and will be started again. */
  | { readonly type: 'restarting'; readonly actor: string }
  /** It has ended, after its last signal. */
  | { readonly type: 'stopped'; readonly actor: string }
  | { readonly type: 'threadEnded'; readonly thread: string; readonly uid: number; readonly why: string }
  | { readonly type: 'fault'; readonly fault: FaultName; readonly what: string }
  /** No more faults from here on. */
  | { readonly type: 'calm' }
  /** Somebody that was asked after `calm` answered. */
  | { readonly type: 'served'; readonly actor: string }

export type HistoryEntry = HistoryEvent & { readonly atMs: number }

export class History {
  readonly entries: HistoryEntry[] = []
  readonly #nowMs: () => number
  readonly #numbers = new Map<string, number>()
  #count = 0

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs
  }

  record(event: HistoryEvent): void {
    this.entries.push(Object.assign(event, { atMs: this.#nowMs() }))
  }

  /** A number that was not given before: of an ask or a watch, or for a name. */
  next(): number {
    this.#count++
    return this.#count
  }

  /** The tag of the next tell from one actor to another. */
  tag(from: string, to: string): TellTag {
    const key = `${from} ${to}`
    const number = (this.#numbers.get(key) ?? 0) + 1
    this.#numbers.set(key, number)
    return { from, to, number }
  }

  /** Takes what a simulation tells; `tagOf` finds the tag in the body of a tell, if it has one. */
  observer(tagOf: (body: unknown) => TellTag | undefined, tellOp = 1): SimulationObserver {
    const given = (frame: Frame, record: (tag: TellTag) => void): void => {
      if (frame.op !== tellOp) return
      const tag = tagOf(frame.body)
      if (tag !== undefined) record(tag)
    }
    const taken = new Map<string, number>()
    return {
      sent: frame => given(frame, ({ from, to, number }) => this.record({ type: 'wired', from, to, number })),
      taken: (frame, _thread, uid) =>
        given(frame, ({ from, to, number }) => {
          const key = `${from} ${to} ${number}`
          if (taken.has(key)) this.record({ type: 'duplicated', from, to, number })
          taken.set(key, uid)
          this.record({ type: 'taken', from, to, number, uid })
        }),
      lost: (frame, cause) =>
        given(frame, ({ from, to, number }) => this.record({ type: 'lost', from, to, number, cause })),
      ended: (thread, uid, why) => this.record({ type: 'threadEnded', thread, uid, why }),
      fault: (fault, what) => this.record({ type: 'fault', fault, what }),
    }
  }
}
