/**
 * Inheritance: which ranks hold blocks that are a peer's word, from before they have any to when none is left.
 *
 *   listeners connect ─▶ a peer is asked for its dump ─▶ its blocks are inherited ─▶ `exact`, another epoch: dropped
 *
 * First connected, then asked: whatever an engine removes after its peer spoke arrives here too. A rank inherits only if its
 * listener is connected by then, and is of the same partition with the same block size.
 * Owns   `inheritedFrom` of every rank. The blocks are the inheritors'; what they have dropped is noticed within a second.
 */

import type { InheritanceMessage } from './inheritor.ts'
import type { RankDump } from './peer-dump.ts'
import type { Rank } from './rank.ts'
import type { InheritedCounts } from './shards.ts'

/** The inheritor of a shard, as far as it is needed here. */
export interface InheritorRef {
  tell(message: InheritanceMessage): unknown
  ask(
    message: Omit<Extract<InheritanceMessage, { readonly type: 'inherit' }>, 'reply'>,
    options: { readonly timeout: number },
  ): Promise<number>
}

const STATUS_TIMEOUT_MS = 1000
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

  /** Gives every expecting rank what the dumps of a peer say of it, or nothing. How many blocks count. */
  async take(url: string, dumps: readonly RankDump[], ranks: readonly Rank[]): Promise<number> {
    let blocks = 0
    for (const rank of ranks) {
      const dump = dumps.find(
        ({ model, group, instanceId, dpRank, blockSizeTokens }) =>
          model === rank.model &&
          group === rank.group &&
          instanceId === rank.instanceId &&
          dpRank === rank.dpRank &&
          blockSizeTokens === rank.blockSizeTokens,
      )
      if (dump === undefined || !(await isConnected(rank))) {
        this.drop(rank)
        continue
      }
      const message = { type: 'inherit', workerSlot: rank.workerSlot, runs: dump.runs } as const
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
    return blocks
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

async function isConnected({ listener, heard }: Rank): Promise<boolean> {
  if (listener === undefined || heard.trust === 'exact') return false
  const status = await listener.ask({ type: 'status' }, { timeout: STATUS_TIMEOUT_MS }).catch(() => undefined)
  return status?.state === 'recovering' || status?.state === 'live'
}
