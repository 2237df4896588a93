/** Arguments of the tracker. */

import type { ActorRef } from '@homing/actor'
import type { DrainedMessage } from '@homing/actors/directory'
import type { RouterSettings } from '@homing/config'
import type { TrackingSettings } from '@homing/placement'
import type { LearnedKeeperMessage } from './messages.ts'

export interface TrackerArgs {
  /** Gets `drained` when a worker has drained; undefined: the message is not sent. */
  readonly directory?: ActorRef<DrainedMessage>
  /** Keeps what was learned over restarts of the tracker; undefined: it is lost. */
  readonly keeper?: ActorRef<LearnedKeeperMessage>
  /** Where what was learned is kept over restarts of the router; undefined: nowhere. */
  readonly learnedFile?: string | undefined
  readonly workerSlotsMax: number
  /** Requests booked at one time. */
  readonly requestsMax: number
  /** Active blocks of prompts at one time; default: that of ActiveLoad. */
  readonly activeBlocksMax?: number | undefined
  readonly tracking?: TrackingSettings
  /** Bookings without a sign of life for this long are freed, in milliseconds. */
  readonly idleMsMax: number
  /** Least time between two batches of bookings to other replicas; undefined: there are no replicas. */
  readonly replicationMs?: number | undefined
}

export type TrackerSettings = Pick<
  RouterSettings,
  | 'learnedFile'
  | 'workerSlotsMax'
  | 'openRequestsMax'
  | 'activeRequestExpiryMs'
  | 'trackActiveBlocks'
  | 'trackPrefillTokens'
  | 'trackOutputBlocks'
  | 'assumeKvReuse'
  | 'replicaSync'
  | 'replicaDelayMs'
>

/** With replicas, the load has room for the requests of this many routers. */
const REPLICAS_COUNTED = 16
/** A request that is sent again is booked anew before its old booking is freed. */
const BOOKINGS_PER_REQUEST = 2

export function trackerArgsFromSettings(
  settings: TrackerSettings,
  parts: {
    readonly directory: ActorRef<DrainedMessage>
    readonly keeper: ActorRef<LearnedKeeperMessage>
  },
): TrackerArgs {
  const { openRequestsMax, replicaSync } = settings
  return {
    directory: parts.directory,
    keeper: parts.keeper,
    learnedFile: settings.learnedFile,
    workerSlotsMax: settings.workerSlotsMax,
    requestsMax: openRequestsMax * BOOKINGS_PER_REQUEST * (replicaSync ? REPLICAS_COUNTED : 1),
    idleMsMax: settings.activeRequestExpiryMs,
    tracking: {
      activeBlocks: settings.trackActiveBlocks,
      prefillTokens: settings.trackPrefillTokens,
      outputBlocks: settings.trackOutputBlocks,
      assumesReuse: settings.assumeKvReuse,
    },
    replicationMs: replicaSync ? settings.replicaDelayMs : undefined,
  }
}
