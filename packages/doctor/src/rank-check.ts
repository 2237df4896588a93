/**
 * Rank check: the event and the replay socket of one rank, as a router would use them.
 *
 * The replay is asked after the subscription is up, so that what is published from then on is seen live.
 */

import type { Clock } from '@homing/base'
import type { EventSource } from '@homing/fleet'
import type { Transport } from '@homing/transport'
import { EventWatch } from './event-watch.ts'
import { ownerOf, type PortOwner } from './port-owner.ts'
import { askReplay, type ReplayAnswer, type ReplayDepth } from './replay-question.ts'

export interface RankCheckOptions {
  readonly transport: Pick<Transport, 'http' | 'messages'>
  readonly clock: Clock
  readonly replayDepth: ReplayDepth
  readonly timeoutMs: number
}

export interface RankCheck {
  readonly dpRank: number
  readonly source: EventSource
  /** The caller must close it. Undefined: not connected. */
  readonly watch: EventWatch | undefined
  /** Undefined: it is not connected. */
  readonly connectedMs: number | undefined
  /** The owner of the event port, if it is not connected. */
  readonly eventsOwner: PortOwner | undefined
  /** Undefined: no replay socket is named. */
  readonly replay: ReplayAnswer | undefined
  /** The owner of the replay port, if it does not answer; undefined: it answers, or no port is named. */
  readonly replayOwner: PortOwner | undefined
}

/** Takes four timeouts at most. */
export async function checkRank(source: EventSource, options: RankCheckOptions): Promise<RankCheck> {
  const { transport, clock, timeoutMs } = options
  const { endpoint, dpRank, fault } = source
  if (fault !== undefined) {
    const eventsOwner = undefined
    const nothing = { watch: undefined, connectedMs: undefined, eventsOwner }
    return { dpRank, source, ...nothing, ...(await checkReplay(source.replayEndpoint, options)) }
  }
  const watch = new EventWatch(transport.messages, clock, endpoint)
  const connectedMs = await watch.connected(timeoutMs)
  const isConnected = connectedMs !== undefined
  if (!isConnected) watch.close()
  const [eventsOwner, { replay, replayOwner }] = await Promise.all([
    isConnected ? undefined : ownerOf(transport, clock, endpoint, 'events', timeoutMs),
    checkReplay(source.replayEndpoint, options),
  ])
  return {
    dpRank,
    source,
    watch: isConnected ? watch : undefined,
    connectedMs,
    eventsOwner,
    replay,
    replayOwner,
  }
}

async function checkReplay(
  endpoint: string | undefined,
  { transport, clock, replayDepth, timeoutMs }: RankCheckOptions,
): Promise<Pick<RankCheck, 'replay' | 'replayOwner'>> {
  if (endpoint === undefined) return { replay: undefined, replayOwner: undefined }
  const replay = await askReplay(transport.messages, clock, endpoint, replayDepth, timeoutMs)
  const replayOwner =
    replay.answeredMs === undefined
      ? await ownerOf(transport, clock, endpoint, 'replay', timeoutMs)
      : undefined
  return { replay, replayOwner }
}
