/**
 * Key audits: compares the answers of engines with their events, and acts on the verdicts.
 *
 *   contradicted   trust is `partial` at most, and the source is rebuilt from the engine's replay, at most
 *                  once per RESYNC_MS_MIN and key; it stays `partial`, over every rebuild, until answers
 *                  agree again
 *   confirmed      ends that; and a history without a beginning counts as complete until the next epoch
 *
 * Owns `audit` of every key.
 * Order  a verdict on predictions of an earlier epoch does not apply to the current one, and is dropped.
 */

import type { ActorContext } from '@homing/actor'
import type { KeyTrust } from './key-trust.ts'
import type { AuditMessage, DirectoryMessage } from './messages.ts'
import type { Key } from './worker.ts'

export interface KeyAuditsOptions {
  readonly context: ActorContext<DirectoryMessage>
  readonly trust: KeyTrust
}

/** A replay may be 10,000 batches, and an engine with wrong events will send wrong events again. */
const RESYNC_MS_MIN = 60_000

export class KeyAudits {
  readonly #options: KeyAuditsOptions
  /** When each key was last rebuilt for its answers; keys that are gone take their entry with them. */
  readonly #resyncedMs = new WeakMap<Key, number>()

  constructor(options: KeyAuditsOptions) {
    this.#options = options
  }

  heard(key: Key, { epoch, verdict, reason }: AuditMessage): void {
    if (epoch !== key.epoch) return
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
