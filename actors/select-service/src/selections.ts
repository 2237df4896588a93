/**
 * Selections: asks the router which worker is to take a prompt, and tells callers what it answers.
 *
 *   question ─▶ partition ─▶ hashes ─▶ routing request ─▶ router ─▶ rank, what it holds, what it must compute
 *
 * Owns   nothing; the catalog names the workers, the index says what they hold.
 */

import type { ActorRef } from '@homing/actor'
import type { IndexQuery, OverlapAnswer, PartitionEntry, Rank } from '@homing/actors/index-service'
import type { RouterMessage } from '@homing/actors/router'
import { fromErrorRecord } from '@homing/base'
import { hashToBigInt } from '@homing/blocks'
import { ServiceConflictError, ServiceNotFoundError } from '@homing/http'
import { type Decision, type Receipt, type RoutingRequest, tokensToCompute } from '@homing/placement'
import {
  fleetName,
  isSame,
  keyOf,
  lifecycleOf,
  partitionText,
  type SelectCatalog,
  type SelectWorker,
} from './catalog.ts'
import { NoneSchedulableError, PinnedNowhereError } from './errors.ts'
import type { HashedPrompt, Question } from './questions.ts'
import type { Partition } from './requests.ts'

export interface SelectionsParts {
  readonly catalog: SelectCatalog
  readonly lookup: IndexQuery
  readonly router: ActorRef<RouterMessage>
  /** A shard may have moved: it is to be asked where it is. */
  readonly lookAgain: () => void
  /** Prompt tokens count as load unless a question says otherwise. */
  readonly countsPrefill: boolean
  /** Longest wait for the router, in milliseconds. */
  readonly askMsMax: number
}

/** What a question is about, once its partition is known. */
export interface Asked extends HashedPrompt {
  readonly question: Question
  readonly entry: PartitionEntry
  readonly request: RoutingRequest
}

export interface Selected {
  readonly worker: SelectWorker
  readonly rank: Rank
  /** Tokens of the prompt that the worker has to compute. */
  readonly prefillTokens: number
  readonly overlapBlocks: number
  readonly trust: Receipt['trust']
  /** Undefined: it is not wanted, or not kept any more. */
  readonly receipt: Receipt | undefined
}

/** Undefined: `/select` names none, so the router makes one. */
const NO_ID = ''
const NOTHING_HELD = { longest_matched: 0, gpu: 0, dp: {}, cpu: 0, disk: 0 }

export class Selections {
  readonly #parts: SelectionsParts

  constructor(parts: SelectionsParts) {
    this.#parts = parts
  }

  /** Throws ServiceNotFoundError, NoneSchedulableError, PinnedNowhereError and BadBodyError. */
  ask(action: string, question: Question): Asked {
    const { catalog } = this.#parts
    const entry = this.partition(action, question)
    const prompt = question.prompt(entry.blockSizeTokens)
    const { pinned, allowed, requiredTaints, preferredTaints, selectionId = NO_ID } = question
    const pin = pinned && this.#pinned(action, question, pinned.workerId, pinned.dpRank)
    const request: RoutingRequest = {
      ...prompt,
      requestId: selectionId,
      model: fleetName(question),
      blockSizeTokens: entry.blockSizeTokens,
      // Its caller says when the first token comes, as a stream does.
      isStream: true,
      expectedOutputTokens: question.expectedOutputTokens,
      tracking: question.tracking,
      unknownPromptReason: undefined,
      textBlocksReason: undefined,
      sessionId: question.sessionId,
      override: question.override,
      moeQuery: question.moeQuery,
      constraints: {
        allowedInstanceIds: allowed?.flatMap(id => catalog.get(id)?.instanceId ?? []),
        requiredTaints,
        preferredTaints,
      },
      pinnedInstanceId: pin?.instanceId,
      pinnedRank: pinned?.dpRank,
      excludedWorkers: [],
    }
    return { ...prompt, question, entry, request }
  }

  /** Workers of a model and group that are not incomplete. */
  partition(action: string, asked: Partition): PartitionEntry {
    const { registry } = this.#parts.catalog
    for (const entry of registry.partitions) if (isSame(entry, asked)) return entry
    const others = [...this.#parts.catalog.workers].filter(worker => isSame(worker, asked))
    if (others.length === 0)
      throw new ServiceNotFoundError(
        action,
        `there is no worker for ${partitionText(asked)}; GET /workers lists those there are`,
      )
    throw new NoneSchedulableError(
      action,
      partitionText(asked),
      others.map(worker => `${worker.workerId} (${lifecycleOf(worker)})`),
    )
  }

  /** Changes nothing. Throws ServiceConflictError where its worker was removed meanwhile. */
  async explain({ request }: Asked): Promise<Selected> {
    const { router, askMsMax } = this.#parts
    const receipt = await router.ask({ type: 'explain', request }, { timeout: askMsMax })
    if ('code' in receipt) throw fromErrorRecord(receipt)
    const { overlapBlocks, creditFactor } = receipt.candidates.find(
      ({ worker }) => worker === receipt.worker,
    )!
    const prefillTokens = tokensToCompute(request, overlapBlocks, creditFactor)
    return { ...this.#rankOf(receipt.worker), overlapBlocks, trust: receipt.trust, prefillTokens, receipt }
  }

  /** What was decided under an id; with the receipt, where the question wants it. */
  async decided({ question }: Asked, decision: Decision): Promise<Selected> {
    const { router, askMsMax } = this.#parts
    const { id, worker, workerSlot, overlapBlocks, trust, prefillTokens } = decision
    const receipt = question.wantsReceipt
      ? await router.ask({ type: 'receipt', id }, { timeout: askMsMax })
      : undefined
    return { ...this.#rankOf(worker, workerSlot), overlapBlocks, trust, prefillTokens, receipt }
  }

  /** `workerSlot`: of the rank that was chosen; undefined: any. Throws ServiceConflictError. */
  #rankOf(key: string, workerSlot?: number): Pick<Selected, 'worker' | 'rank'> {
    for (const worker of this.#parts.catalog.workers)
      for (const rank of worker.ranks)
        if (keyOf(rank) === key && (workerSlot ?? rank.workerSlot) === rank.workerSlot)
          return { worker, rank }
    throw new ServiceConflictError(
      'select a worker',
      `${key}, which was chosen, was removed meanwhile; select again`,
    )
  }

  /** As callers are told it. `id`: under which it can be reserved; undefined: under none. */
  view({ question, entry, localHashes }: Asked, id: string | undefined, selected: Selected): object {
    const { worker, rank, prefillTokens } = selected
    const { instances } = this.overlap(entry, localHashes)
    return {
      ...(id === undefined ? {} : { selection_id: id }),
      model_name: question.model,
      routing_group: question.group,
      worker_id: worker.workerId,
      dp_rank: rank.dpRank,
      endpoint: worker.endpoint,
      block_size: entry.blockSizeTokens,
      overlap: instances[String(worker.workerId)] ?? NOTHING_HELD,
      effective_prefill_tokens: prefillTokens,
    }
  }

  /** What a reservation has besides. */
  reservedView({ question, sequenceHashes, promptTokens }: Asked): object {
    return {
      sequence_hashes: hashesView(sequenceHashes),
      isl_tokens: promptTokens,
      track_prefill_tokens: this.countsPrefill(question),
    }
  }

  countsPrefill({ tracking }: Question): boolean {
    return tracking?.prefillTokens ?? this.#parts.countsPrefill
  }

  /** Tokens that each rank holds of a prompt, from its beginning on. */
  overlap(entry: PartitionEntry, localHashes: Int32Array): OverlapAnswer {
    const { answer } = this.#parts.lookup.overlap(entry, localHashes)
    this.#parts.lookAgain()
    return answer
  }

  #pinned(action: string, asked: Partition, workerId: bigint, dpRank: number | undefined): SelectWorker {
    const worker = this.#parts.catalog.get(workerId)
    if (worker === undefined || !isSame(worker, asked))
      throw new PinnedNowhereError(action, `worker ${workerId}, which is not of ${partitionText(asked)}`)
    if (lifecycleOf(worker) === 'incomplete')
      throw new PinnedNowhereError(action, `worker ${workerId}, which is incomplete`)
    if (dpRank !== undefined && !worker.ranks.some(rank => rank.dpRank === dpRank))
      throw new PinnedNowhereError(
        action,
        `rank ${dpRank} of worker ${workerId}, which has ${worker.rankFirst} to ${worker.rankFirst + worker.rankCount - 1}`,
      )
    return worker
  }
}

/** Pairs [lo, hi] as numbers from 0 to 2^64 − 1. */
export function hashesView(words: Int32Array): readonly bigint[] {
  return Array.from({ length: words.length / 2 }, (_, i) => hashToBigInt(words[2 * i]!, words[2 * i + 1]!))
}
