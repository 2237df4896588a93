/**
 * Prompt guesses: tells indexers to count prompts as held by the workers that they were sent to, until KV
 * events say so, or for a while where none come.
 *
 * Owns   nothing: the indexer of a worker key keeps its guesses. What takes one back is the open decision's.
 */

import type { Candidate, RoutingRequest } from '@homing/placement'
import type { RouterArgs } from './router-args.ts'

export class PromptGuesses {
  readonly #args: Pick<RouterArgs, 'guesses' | 'indexers'>

  constructor(args: Pick<RouterArgs, 'guesses' | 'indexers'>) {
    this.#args = args
  }

  /**
   * Tells the indexer to count the prompt as held by the worker for a while. `ttlWithoutEventsMs` limits a
   * guess that no KV events will confirm, `ttlUntilEventsMs` any other. Returns a function that takes the
   * guess back; undefined: nothing was guessed.
   */
  add(request: RoutingRequest, { worker, key }: Candidate, id: string): (() => void) | undefined {
    const { ttlWithoutEventsMs, ttlUntilEventsMs, blocksMax } = this.#args.guesses
    const isGuess = key.trust === 'approximate' || request.textBlocksReason !== undefined
    const lifeMs = isGuess ? ttlWithoutEventsMs : ttlUntilEventsMs
    if (lifeMs === undefined || key.trust === 'none' || request.localHashes.length === 0) return undefined
    const { workerSlot, epoch, shard } = key
    const { localHashes } = request
    const indexer = this.#args.indexers[shard]
    indexer?.tell({
      type: 'routed',
      id,
      workerSlot,
      epoch,
      localHashes,
      ttlMs: lifeMs,
      blocksMax: Math.min(blocksMax, worker.kvBlocks?.value ?? blocksMax),
    })
    return () => void indexer?.tell({ type: 'unrouted', id, workerSlot, epoch, localHashes })
  }
}
