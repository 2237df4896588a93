/** How a thread ended, for askers and watchers of its actors. */

import type { ErrorRecord } from '@homing/base'

export type ThreadEndReason = 'threadExit' | 'threadHung' | 'threadOom'

export interface ThreadEnd {
  readonly reason: ThreadEndReason
  /** The code that the thread exited with, where it said so. */
  readonly exitCode?: number
  /** The error that ended it. */
  readonly error?: ErrorRecord
}

/** A life of a thread that is over. */
export interface PastLife {
  readonly uid: number
  readonly end: ThreadEnd
}

/** The end of a thread of which nothing is known. */
export const UNEXPLAINED: ThreadEnd = { reason: 'threadExit' }

/** It in words, for the end of a sentence. */
export function textOfEnd({ reason, exitCode, error }: ThreadEnd): string {
  if (reason === 'threadHung') return 'it has ended: it did not answer'
  if (reason === 'threadOom') return 'it has ended: its heap was full'
  if (error !== undefined) return `it has ended: ${error.message}`
  return exitCode === undefined ? 'it has ended' : `it has ended: it exited with code ${exitCode}`
}
