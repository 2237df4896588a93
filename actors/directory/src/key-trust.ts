/**
 * Key trust: the trust in the index of a worker key, with the reason in words for people.
 *
 * Without usable events, prompts count as cached where they were sent: `approximate`. The trust is `none`
 * only for a worker that has never answered, and where caches are ignored.
 *
 * The listener owns the trust in its source; this trust counts while the key should have a listener. Answers
 * of the engine outweigh its events: they can take `exact` away, and can give it to a history that only lacks
 * its beginning. Owns the published fields `trust`, `trustReason` and `trustSinceMs` of every key.
 */

import type { ActorContext } from '@homing/actor'
import { eventFlags, owesEventSources } from '@homing/fleet'
import type { Trust } from '@homing/index'
import { clashText, type SocketClaims } from '@homing/transport'
import type { DirectoryMessage } from './messages.ts'
import type { Key, Worker } from './worker.ts'
import type { WorkerTable } from './worker-table.ts'

export interface KeyTrustOptions {
  readonly context: ActorContext<DirectoryMessage>
  readonly workers: WorkerTable
  readonly claims: SocketClaims
  readonly kvEvents: boolean
  readonly ignoresCaches: boolean
  /** Why prompts are not found in the cache of a worker, however well it is known; undefined: they are. */
  readonly promptFault: (worker: Worker) => string | undefined
  /** Trust or reason of a key of this worker changed. */
  readonly changed: (worker: Worker) => void
}

export class KeyTrust {
  readonly #options: KeyTrustOptions
  /** What was logged last of the block size of a worker. */
  readonly #toldOfSize = new WeakMap<Worker, string | undefined>()

  constructor(options: KeyTrustOptions) {
    this.#options = options
  }

  /** Why a key can have no listener, without what follows; undefined: it can. */
  obstacle({ name, worker, dpRank }: Key): string | undefined {
    if (this.#options.ignoresCaches) return 'caches are ignored (--kv-overlap-score-weight 0)'
    if (!this.#options.kvEvents) return 'KV events are switched off (--no-kv-events)'
    if (worker.outcome === undefined) return 'not probed yet'
    if (worker.outcome.sleep?.hasCache === false) return 'its engine sleeps, and its cache is gone'
    if (this.#options.workers.eventSource(worker, dpRank) === undefined) {
      const ports = `${worker.spec.origin}?events=PORT&replay=PORT`
      if (owesEventSources(worker.spec, worker.outcome)) {
        return `did not answer whether it publishes KV events; it is asked again. If it does, their ports can be named: ${ports}`
      }
      return `reports no KV events: start it with ${eventFlags(worker.outcome.engine)}, or name their ports: ${ports}`
    }
    const { endpoint, fault } = this.#options.workers.eventSource(worker, dpRank)!
    if (fault !== undefined)
      return `names ${JSON.stringify(endpoint)} for its events, which cannot be used: ${fault}`
    const clash = this.#options.claims.clashOf(name)
    if (clash !== undefined) {
      return `names ${clashText(clash)}, and nobody can tell whose blocks are reported there: give each engine ports of its own`
    }
    return this.#options.workers.blockSizeFault(worker)
  }

  /** Brings the trust of a key in line with what is known. */
  refresh(key: Key): void {
    const { context, changed } = this.#options
    if (!key.isGone) this.#tellOfSize(key.worker)
    const obstacle = this.obstacle(key)
    const known = obstacle === undefined ? this.#trustOf(key) : (['none', obstacle] as const)
    const mayGuess = key.worker.outcome !== undefined && !this.#options.ignoresCaches
    const [trust, reason] = mayGuess ? orGuessed(known) : known
    if (key.trust === trust && key.trustReason === reason) return
    if (key.trust !== trust) {
      key.trustSinceMs = context.clock.wallMs()
      if (key.worker.wasAnnounced && !key.isGone)
        context.log.info({ key: key.name, trust, reason }, 'trust has changed')
    }
    key.trust = trust
    key.trustReason = reason
    changed(key.worker)
  }

  /** A wrong block size makes every event useless, and nothing else fails: so it is a warning, once. */
  #tellOfSize(worker: Worker): void {
    const { context, workers, kvEvents, ignoresCaches } = this.#options
    if (worker.outcome === undefined || !kvEvents || ignoresCaches) return
    const fault = workers.blockSizeFault(worker)
    if (fault === this.#toldOfSize.get(worker)) return
    this.#toldOfSize.set(worker, fault)
    if (fault !== undefined)
      context.log.warn(
        { worker: worker.spec.id, fault },
        'wrong block size: no KV event of this worker counts',
      )
  }

  #trustOf(key: Key): readonly [Trust, string] {
    const known = trustOf(key)
    const fault = known[0] === 'exact' ? this.#options.promptFault(key.worker) : undefined
    return fault === undefined ? known : ['partial', fault]
  }
}

/** Replaces trust `none` by guesses from sent requests. */
function orGuessed([trust, reason]: readonly [Trust, string]): readonly [Trust, string] {
  return trust === 'none' ? ['approximate', `${reason}; guesses from sent requests count`] : [trust, reason]
}

function trustOf({ heard, audit, silence }: Key): readonly [Trust, string] {
  if (audit?.verdict === 'contradicted' && (heard.trust === 'exact' || heard.trust === 'partial')) {
    return ['partial', `${audit.reason}; ${heard.reason}`]
  }
  if (audit?.verdict === 'confirmed' && heard.isSuffix) {
    return ['exact', `${audit.reason}; before that, ${heard.reason}`]
  }
  if (silence?.reason !== undefined && heard.trust === 'exact') return ['partial', silence.reason]
  return [heard.trust, heard.reason]
}
