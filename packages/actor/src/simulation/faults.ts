/**
 * Faults of a simulation: what can go wrong between and in its threads, by name, and how likely. Chances are
 * per message, per batch or per step; 0 and absent both mean never.
 */

import { checkedFields, checkedWord, shown } from '../contract/settings.ts'

/**
 * Where in its work a thread dies:
 *
 *   beforeTurn   its actors were about to run
 *   midTurn      some have run, and nothing that they sent was published
 *   afterTurn    all of the turn was published
 *   afterTake    frames were taken from a link, and reached no mailbox
 *   midBatch     some of them did
 *   afterBatch   all of them did, and no actor has run
 *   atStart      a new life has its actors and links, and no thread was told
 */
export const CRASH_POINTS = [
  'beforeTurn',
  'midTurn',
  'afterTurn',
  'afterTake',
  'midBatch',
  'afterBatch',
  'atStart',
] as const

export type CrashPoint = (typeof CRASH_POINTS)[number]

export interface SimulatedFaults {
  /**
   * Chance per message between threads (tell, ask or answer) to be lost. The runtime's own words never are.
   */
  readonly drop?: number
  /** Chance per message between threads to be delivered twice, one right after the other. */
  readonly duplicate?: number
  /** Chance per batch that its link stands still, for up to `delayMsMax` (default 20). */
  readonly delay?: number
  readonly delayMsMax?: number
  /**
   * Chance per step that a thread dies, at one of `crashPoints` (default all); `crashesMax` times at most.
   */
  readonly crash?: number
  readonly crashPoints?: readonly CrashPoint[]
  readonly crashesMax?: number
  /**
   * Chance per step that a thread runs nothing for up to `hangMsMax` (default 200); `hangsMax` times at most.
   */
  readonly hang?: number
  readonly hangMsMax?: number
  readonly hangsMax?: number
  /**
   * Frames that a link holds; default 1024. Some more wait with the sender, `spillFrames` (default 16,384).
   */
  readonly linkFrames?: number
  readonly spillFrames?: number
  /**
   * Chance per turn that a link of its thread is read although actors have not handled what it gave them
   * before.
   */
  readonly eager?: number
  /** Chance that no spare is ready: the new life takes up to `slowStartMsMax` (default 2000). */
  readonly spareNotReady?: number
  readonly slowStartMsMax?: number
  /** Chance per step that everything stands still for up to `pauseMsMax` (default 10). */
  readonly pause?: number
  readonly pauseMsMax?: number
  /** Threads that crash and hang; default all but main. */
  readonly threads?: readonly string[]
}

/** Every field, and the range of those that are numbers. */
const FIELDS: Readonly<Record<keyof SimulatedFaults, 'chance' | 'number' | 'list'>> = {
  drop: 'chance',
  duplicate: 'chance',
  delay: 'chance',
  delayMsMax: 'number',
  crash: 'chance',
  crashPoints: 'list',
  crashesMax: 'number',
  hang: 'chance',
  hangMsMax: 'number',
  hangsMax: 'number',
  linkFrames: 'number',
  spillFrames: 'number',
  eager: 'chance',
  spareNotReady: 'chance',
  slowStartMsMax: 'number',
  pause: 'chance',
  pauseMsMax: 'number',
  threads: 'list',
}

/** Throws RangeError for a field that is none, or out of its range: such faults would never be dealt. */
export function checkFaults(faults: SimulatedFaults): void {
  checkedFields('faults', faults, Object.keys(FIELDS))
  for (const [field, given] of Object.entries(faults) as [keyof SimulatedFaults, unknown][]) {
    if (given === undefined) continue
    const kind = FIELDS[field]
    if (kind === 'list') {
      if (!Array.isArray(given)) throw new RangeError(`cannot use ${shown(given)} as ${field}: use an array`)
    } else if (typeof given !== 'number' || !(given >= 0) || (kind === 'chance' && given > 1)) {
      const range = kind === 'chance' ? 'a chance, 0 … 1' : 'a number ≥ 0'
      throw new RangeError(`cannot use ${shown(given)} as ${field}: use ${range}`)
    }
  }
  for (const point of faults.crashPoints ?? []) checkedWord('a crash point', point, CRASH_POINTS)
}

export type FaultName = 'drop' | 'duplicate' | 'delay' | 'crash' | 'hang' | 'spareNotReady' | 'fail'

/** Why a message between threads did not arrive. */
export type LossCause =
  /** A fault dropped it. */
  | 'dropped'
  /** Its writer died before it was published. */
  | 'unpublished'
  /** Its reader had taken it and died before it reached a mailbox. */
  | 'taken'
  /** An ask or an answer, meant for a life of the reader that is over. */
  | 'void'
  /** Its writer and its reader died. */
  | 'orphaned'
  /** The reader's thread is not coming back. */
  | 'gone'
