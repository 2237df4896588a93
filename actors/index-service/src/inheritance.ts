/**
 * Inheritance: which ranks have blocks known only from a peer, from before the first until none is left.
 *
 *   listeners connect ─▶ a peer is asked for its dump ─▶ its blocks are inherited
 *   `exact`, in another epoch ─▶ the inherited blocks are dropped
 *
 * The listener connects before the peer is asked, so removals after the peer's answer arrive here too. A rank
 * inherits only if its listener is connected by then, and if partition, block size and engine are the same.
 * Instances and ranks are arbitrary numbers, so the dump must name the endpoint that is registered here. An
 * endpoint on the local machine means another engine if the peer is on another machine.
 * Owns   `inheritedFrom` of every rank. The inheritors own the blocks; this module notices within a second
 *        when they have dropped them.
 */

import { hostName, isOfThisMachine, isSameSocket } from '@homing/transport'
import type { InheritanceMessage } from './inheritor.ts'
import type { InheritedCounts } from './messages.ts'
import type { RankDump } from './peer-dump.ts'
import type { Rank } from './rank.ts'

/** The inheritor of a shard, as far as it is needed here. */
export interface InheritorRef {
  tell(message: InheritanceMessage): unknown
  ask(
    message: Omit<Extract<InheritanceMessage, { readonly type: 'inherit' }>, 'reply'>,
    options: { readonly timeout: number },
  ): Promise<number>
}

/** What came of a peer's dump. */
export interface Taken {
  /** How many blocks count. */
  readonly blocks: number
  /** Ranks that the peer may mean another engine by. */
  readonly refused: readonly { readonly rank: Rank; readonly why: string }[]
}

const PEER_STATUS_TIMEOUT_MS = 1000
const INHERIT_TIMEOUT_MS = 10_000

export class Inheritance {
  /** By shard; empty: nothing is ever inherited. */
  readonly #inheritors: readonly InheritorRef[]

  constructor(inheritors: readonly InheritorRef[]) {
    this.#inheritors = inheritors
  }

  /** Before its listener starts: the events of this rank are kept until a peer has spoken. */
  expect({ workerSlot, blockSizeTokens, shard }: Rank): void {
    this.#inheritors[shard]?.tell({ type: 'awaitInheritance', workerSlot, blockSizeTokens })
  }

  /** Gives every expecting rank what the dumps of a peer say of it, or nothing. */
  async take(url: string, dumps: readonly RankDump[], ranks: readonly Rank[]): Promise<Taken> {
    let blocks = 0
    const refused: { readonly rank: Rank; readonly why: string }[] = []
    for (const rank of ranks) {
      const dump = dumps.find(
        ({ model, group, instanceId, dpRank, blockSizeTokens }) =>
          model === rank.model &&
          group === rank.group &&
          instanceId === rank.instanceId &&
          dpRank === rank.dpRank &&
          blockSizeTokens === rank.blockSizeTokens,
      )
      const why = dump && whyOtherEngine(dump, rank, url)
      if (why !== undefined) refused.push({ rank, why })
      if (dump === undefined || why !== undefined || !(await isConnected(rank))) {
        this.drop(rank)
        continue
      }
      const { runs, pooled } = dump
      const message = { type: 'inherit', workerSlot: rank.workerSlot, runs, pooled } as const
      const inherited = await this.#inheritors[rank.shard]!.ask(message, {
        timeout: INHERIT_TIMEOUT_MS,
      }).catch(() => 0)
      // What it heard meanwhile may be all there is to know.
      if (inherited === 0 || rank.heard.trust === 'exact') {
        this.drop(rank)
      } else {
        rank.inheritedFrom = url
        blocks += inherited
      }
    }
    return { blocks, refused }
  }

  drop(rank: Rank): void {
    rank.inheritedFrom = undefined
    this.#inheritors[rank.shard]?.tell({ type: 'disinherit', workerSlot: rank.workerSlot })
  }

  /** The engine's own history may be whole now: nobody's word is needed any more. */
  confirm(rank: Rank): void {
    if (rank.inheritedFrom !== undefined && rank.heard.trust === 'exact') this.drop(rank)
  }

  /** What the inheritors hold now: ranks of which that is nothing inherit no more. */
  review(ranks: Iterable<Rank>, counts: readonly InheritedCounts[]): void {
    for (const rank of ranks) {
      const ofShard = counts[rank.shard]
      if (rank.inheritedFrom === undefined || ofShard === undefined) continue
      if ((ofShard[rank.workerSlot] ?? 0) === 0) this.drop(rank)
    }
  }
}

/** Why a dump may be of another engine than a rank; undefined: it is of the same. */
function whyOtherEngine({ endpoint }: RankDump, rank: Rank, url: string): string | undefined {
  if (endpoint === undefined)
    return 'its dump names no endpoint; it is from an older version, or another implementation'
  if (rank.endpoint === undefined || !isSameSocket(endpoint, rank.endpoint))
    return `its dump is from the engine at ${endpoint}`
  const isNeighbour = hostName(new URL(url).hostname) === 'localhost'
  if (isNeighbour || !isOfThisMachine(endpoint)) return undefined
  return `${endpoint} means another engine on the peer's machine; name the host of the engine`
}

async function isConnected({ listener, heard }: Rank): Promise<boolean> {
  if (listener === undefined || heard.trust === 'exact') return false
  const status = await listener
    .ask({ type: 'status' }, { timeout: PEER_STATUS_TIMEOUT_MS })
    .catch(() => undefined)
  return status?.state === 'recovering' || status?.state === 'live'
}
