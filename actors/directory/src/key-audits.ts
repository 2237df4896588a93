/**
 * Key audits: compares the answers of engines with their events, and acts on the verdicts.
 *
 *   contradicted   trust is `partial` at most, and the source is rebuilt from the engine's replay, at most
 *                  once per RESYNC_MS_MIN and key; it stays `partial`, over every rebuild, until answers
 *                  agree again
 *   explained      a contradiction that the events tell of: they removed at least as many blocks as
 *                  the answers missed, and few of them were stored again while they counted as held. So they
 *                  were evicted between the decision and the request's turn: nothing changes
 *   confirmed      ends that; and a history without a beginning counts as complete until the next epoch
 *
 * Owns `audit` of every key.
 * Order  a verdict on predictions of an earlier epoch does not apply to the current one, and is dropped.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import type { Churn, IndexerMessage } from '@homing/actors/indexer'
import type { KeyTrust } from './key-trust.ts'
import type { AuditMessage, DirectoryMessage } from './messages.ts'
import type { Key } from './worker.ts'

export interface KeyAuditsOptions {
  readonly context: ActorContext<DirectoryMessage>
  readonly trust: KeyTrust
  /** By shard. */
  readonly indexers: readonly ActorRef<IndexerMessage>[]
}

const CHURN_ANSWER_MS_MAX = 5000
const EVICTED =
  'answers found less cached than predicted: it was evicted before their turn, as the events say'
/** Share of the missing blocks, computed again, from which on evictions do not explain the answers. */
const REPEATED_SHARE_MAX = 1 / 2

/** A replay may be 10,000 batches, and an engine with wrong events will send wrong events again. */
const RESYNC_MS_MIN = 60_000

export class KeyAudits {
  readonly #options: KeyAuditsOptions
  /** When each key was last rebuilt for its answers; keys that are gone take their entry with them. */
  readonly #resyncedMs = new WeakMap<Key, number>()

  constructor(options: KeyAuditsOptions) {
    this.#options = options
  }

  heard(key: Key, audit: AuditMessage): void {
    if (audit.epoch !== key.epoch) return
    if (audit.verdict === 'confirmed') {
      this.#hold(key, audit)
      return
    }
    const { context, indexers } = this.#options
    context.pipe(
      indexers[key.shard]!.ask(
        { type: 'takeChurn', workerSlot: key.workerSlot },
        { timeout: CHURN_ANSWER_MS_MAX },
      ),
      churn => ({ type: 'churnSeen', audit, churn }),
      () => ({ type: 'churnSeen', audit, churn: undefined }),
    )
  }

  /** What the events say about a contradiction. */
  looked(key: Key, audit: AuditMessage, churn: Churn | undefined): void {
    if (audit.epoch !== key.epoch) return
    const { reason } = audit
    if (churn === undefined || !isExplained(audit, churn)) this.#hold(key, audit)
    else this.#options.context.log.info({ key: key.name, reason, ...churn }, EVICTED)
  }

  #hold(key: Key, { verdict, reason }: AuditMessage): void {
    key.audit = { verdict, reason }
    key.listener?.tell({ type: 'audited', isContradicted: verdict === 'contradicted' })
    if (verdict === 'contradicted') this.#resync(key, reason)
    this.#options.trust.refresh(key)
  }

  /** Another epoch: what was confirmed was the history before it. */
  begin(key: Key): void {
    if (key.audit?.verdict === 'confirmed') key.audit = undefined
  }

  #resync(key: Key, reason: string): void {
    const { context } = this.#options
    const nowMs = context.clock.nowMs()
    const lastMs = this.#resyncedMs.get(key) ?? Number.NEGATIVE_INFINITY
    if (nowMs - lastMs < RESYNC_MS_MIN) return
    this.#resyncedMs.set(key, nowMs)
    context.log.warn({ key: key.name, reason }, 'answers contradict the events; the source is rebuilt')
    key.listener?.tell({ type: 'resync', cause: 'lost', reason })
  }
}

/** Whether the missing blocks were evicted after the decisions. */
function isExplained({ missingBlocks }: AuditMessage, { removedBlocks, repeatedBlocks }: Churn): boolean {
  return removedBlocks >= missingBlocks && repeatedBlocks < REPEATED_SHARE_MAX * missingBlocks
}
