/** Trust in a source according to its events alone: a pure function of the source's state. */

import type { Trust } from '@homing/index'
import type { Purpose } from './attempts.ts'
import type { HistoryView } from './history.ts'
import type { SourceTrust } from './messages.ts'

/**
 * `replaying`: a replay is under way. `pausing`: between two replays, or between two tries to pass events to
 * the indexer. `apart`: the live socket contradicts itself, and nothing of it is followed for a while.
 */
export type Phase = 'connecting' | 'disconnected' | 'live' | 'replaying' | 'pausing' | 'apart'

export interface SourceView {
  readonly phase: Phase
  /** Purpose of the recovery, in the phases that have one. */
  readonly purpose: Purpose
  /** Why a rebuild is due. */
  readonly owedRebuild: string | undefined
  /** For people. */
  readonly eventsEndpoint: string
  readonly replayEndpoint: string | undefined
  /** A clear was refused: the blocks held may be of before. */
  readonly owesClear: boolean
  /** Why the live socket contradicts the replay or itself. */
  readonly contradiction: string | undefined
  /** The live socket and the history are of one life, or it is too early to know. */
  readonly isConfirmed: boolean
  readonly history: HistoryView
}

export function trustOf(view: SourceView): SourceTrust {
  const [trust, reason] = trustAndReason(view)
  const { epoch, unreadableBatches, lacks, doubt } = view.history
  const isMissing = unreadableBatches > 0 || lacks !== undefined
  const isBelieved = view.contradiction === undefined && view.isConfirmed && !isMissing && doubt === undefined
  const isSuffix = trust === 'partial' && view.phase === 'live' && isBelieved
  const said = { trust, reason, epoch, isSuffix }
  return trust !== 'exact' && isCatchingUp(view) ? { ...said, isCatchingUp: true } : said
}

function isCatchingUp(view: SourceView): boolean {
  const { phase, purpose, owedRebuild, contradiction, isConfirmed, replayEndpoint } = view
  if (phase === 'connecting' || phase === 'disconnected' || contradiction !== undefined) return false
  if (phase !== 'live' && purpose !== 'check') return true
  return owedRebuild !== undefined || (!isConfirmed && replayEndpoint !== undefined)
}

function trustAndReason(view: SourceView): readonly [Trust, string] {
  const { phase, purpose, owedRebuild, eventsEndpoint, history } = view
  if (phase === 'connecting') return ['none', `no connection to ${eventsEndpoint} yet`]
  if (phase === 'disconnected') {
    const reason = eventsEndpoint.startsWith('nats://')
      ? `nobody is heard at ${eventsEndpoint}: its broker is out of reach, or its publisher is silent or shares the subject with another`
      : 'event socket is down'
    return ['none', reason]
  }
  if (view.owesClear) return ['none', `the index accepts no more events now: ${history.reason}`]
  const isRecovering = phase !== 'live'
  if (isRecovering && purpose === 'rebuild') {
    return ['none', `replaying the engine's history: ${history.reason}`]
  }
  if (owedRebuild !== undefined) return ['none', `a rebuild is due: ${owedRebuild}`]
  if (view.contradiction !== undefined) return ['partial', view.contradiction]
  if (isRecovering && purpose !== 'check') {
    return ['partial', `catching up from sequence ${history.expected ?? 0}`]
  }
  if (!view.isConfirmed) {
    const { replayEndpoint } = view
    return [
      'partial',
      replayEndpoint === undefined
        ? `a batch of ${eventsEndpoint} is older than the one before it: the engine's clock was set back, or it restarted`
        : `the replay at ${replayEndpoint} has not yet repeated an event of ${eventsEndpoint}`,
    ]
  }
  if (history.unreadableBatches > 0) {
    return [
      'partial',
      `${history.unreadableBatches} batches could not be read completely; blocks may be missing or stale`,
    ]
  }
  if (history.lacks !== undefined) return ['partial', `not all is known: ${history.lacks}`]
  if (history.doubt !== undefined) {
    return ['partial', `blocks may be of an earlier life of the engine: ${history.doubt}`]
  }
  switch (history.beginning) {
    case 'cleared':
      return ['exact', 'every batch since the engine last cleared its cache is applied']
    case 'start':
      return ['exact', 'every batch since the engine started is applied']
    case 'unknown':
      return ['partial', `older blocks are unknown: ${history.reason}`]
  }
}
