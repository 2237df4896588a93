/**
 * Key silence: notices a source that publishes nothing although its engine has computed blocks.
 *
 * An engine whose publisher is dead or disabled, with its sockets open, looks like one whose cache is empty
 * or does not change: `exact`. But engines publish computed blocks. So after an answer to a prompt with
 * uncached blocks, events must follow: if its source has not published GRACE_PROBES probe intervals later,
 * its trust is `partial` until it does. An engine without prefix cache is treated the same. This has no cost,
 * because no cached blocks are credited to it anyway.
 *
 * Owns `silence` of every key.
 */

import type { ActorContext } from '@homing/actor'
import type { SourceStatus } from '@homing/actors/listener'
import type { KeyTrust } from './key-trust.ts'
import type { ComputedMessage, DirectoryMessage } from './messages.ts'
import type { Key } from './worker.ts'

export interface KeySilenceOptions {
  readonly context: ActorContext<DirectoryMessage>
  readonly trust: KeyTrust
  readonly probeIntervalMs: number
  /** Past it a listener has not answered. */
  readonly statusTimeoutMs: number
}

const GRACE_PROBES = 2
/** The request began a little later than what was predicted for it. */
const SLACK_MS = 1000

export class KeySilence {
  readonly #options: KeySilenceOptions

  constructor(options: KeySilenceOptions) {
    this.#options = options
  }

  /** An answer of this key is complete, and blocks were computed for it. */
  computed(key: Key, { epoch, durationMs }: ComputedMessage): void {
    if (epoch !== key.epoch || key.silence !== undefined) return
    const nowMs = this.#options.context.clock.nowMs()
    key.silence = { sinceMs: nowMs - durationMs - SLACK_MS, reason: undefined }
    this.#wait(key)
  }

  /** The time for it is over. */
  due(key: Key, epoch: number): void {
    const { context, statusTimeoutMs } = this.#options
    if (epoch !== key.epoch || key.silence === undefined || key.listener === undefined) return
    context.pipe(
      key.listener.ask({ type: 'status' }, { timeout: statusTimeoutMs }),
      status => ({ type: 'silenceSeen', key: key.name, epoch, status }),
      () => ({ type: 'silenceSeen', key: key.name, epoch, status: undefined }),
    )
  }

  /** `status`: the listener's report of the source; undefined: the listener did not answer. */
  seen(key: Key, epoch: number, status: SourceStatus | undefined): void {
    const { context, trust } = this.#options
    if (epoch !== key.epoch || key.silence === undefined) return
    const { sinceMs, reason } = key.silence
    const ageMs = status?.lastEventAgeMs ?? Number.POSITIVE_INFINITY
    if (context.clock.nowMs() - ageMs >= sinceMs) {
      key.silence = undefined
    } else {
      if (status !== undefined && reason === undefined) {
        key.silence = { sinceMs, reason: SILENT }
        context.log.warn({ key: key.name, reason: SILENT }, 'engine does not publish what it computes')
      }
      this.#wait(key)
    }
    trust.refresh(key)
  }

  /** A new epoch begins: no events are expected yet. */
  begin(key: Key): void {
    key.silence = undefined
  }

  #wait(key: Key): void {
    const { context, probeIntervalMs } = this.#options
    const due: DirectoryMessage = { type: 'silenceDue', key: key.name, epoch: key.epoch }
    context.schedule(GRACE_PROBES * probeIntervalMs, due)
  }
}

const SILENT =
  'it has computed blocks and published none: its KV events do not arrive, or its prefix cache is switched off'
