/**
 * `GET /workers`: one row per instance, with the state of each of its listeners.
 *
 * A listener is `pending` until its events flow, `active` while they do, and `failed` if its connection is
 * down (it recovers by itself) or its registration is wrong (it does not). An instance shows failed before
 * pending before active. The state `paused` of other services does not occur: a listener cannot be paused.
 */

import type { SourceStatus } from '@homing/actors/listener'
import { type Rank, trustOf } from './rank.ts'
import type { Partition } from './requests.ts'

export type ListenerState = 'failed' | 'pending' | 'active'

/** From the first that counts to the last. */
export const LISTENER_STATES: readonly ListenerState[] = ['failed', 'pending', 'active']

export interface RankView {
  readonly rank: Rank
  readonly state: ListenerState
  /** Undefined: its listener did not answer in time. */
  readonly status: SourceStatus | undefined
}

const STATUS_TIMEOUT_MS = 500

/** Asks all listeners at the same time. */
export async function viewRanks(ranks: Iterable<Rank>): Promise<readonly RankView[]> {
  return Promise.all(
    [...ranks].map(async rank => {
      const { listener } = rank
      const status = await listener
        ?.ask({ type: 'status' }, { timeout: STATUS_TIMEOUT_MS })
        .catch(() => undefined)
      return { rank, status, state: stateOf(rank, status) }
    }),
  )
}

/** Instances in the order of their first registration. `blocksOf` and `inheritedOf`: by worker slot. */
export function workersView(
  views: readonly RankView[],
  filter: Partial<Partition>,
  blocksOf: (rank: Rank) => number | null,
  inheritedOf: (rank: Rank) => number,
): readonly object[] {
  const instances = new Map<string, RankView[]>()
  for (const view of views) {
    const { model, group, instanceId } = view.rank
    if (filter.model !== undefined && filter.model !== model) continue
    if (filter.group !== undefined && filter.group !== group) continue
    const name = instanceId.toString()
    const listed = instances.get(name)
    if (listed === undefined) instances.set(name, [view])
    else listed.push(view)
  }
  return [...instances.values()].map(ranks => {
    const { instanceId, model, group, blockSizeTokens } = ranks[0]!.rank
    return {
      instance_id: instanceId,
      source: 'zmq',
      status: LISTENER_STATES.find(state => ranks.some(view => view.state === state)),
      model_name: model,
      routing_group: group,
      block_size: blockSizeTokens,
      endpoints: Object.fromEntries(ranks.map(({ rank }) => [rank.dpRank, rank.endpoint])),
      listeners: Object.fromEntries(
        ranks.map(view => [
          view.rank.dpRank,
          listenerView(view, blocksOf(view.rank), inheritedOf(view.rank)),
        ]),
      ),
    }
  })
}

function listenerView({ rank, state, status }: RankView, blocks: number | null, inherited: number): object {
  const { trust, reason } = trustOf(rank)
  return {
    endpoint: rank.endpoint,
    status: state,
    ...(state === 'failed' ? { last_error: reason } : {}),
    replay_endpoint: rank.replayEndpoint ?? null,
    trust,
    trust_reason: reason,
    blocks,
    inherited: rank.inheritedFrom === undefined ? null : { peer: rank.inheritedFrom, blocks: inherited },
    last_sequence: status?.lastSequence ?? null,
    last_event_age_ms: status?.lastEventAgeMs ?? null,
    gaps: status?.gaps ?? null,
    replays: status?.replays ?? null,
    foreign_ranks: status?.foreignRanks ?? null,
    resumed_sequence: status?.checkpoint.resumedSequence ?? null,
    saved_sequence: status?.checkpoint.savedSequence ?? null,
  }
}

function stateOf(rank: Rank, status: SourceStatus | undefined): ListenerState {
  if (rank.fault !== undefined || status?.state === 'disconnected') return 'failed'
  return status?.state === 'live' ? 'active' : 'pending'
}
