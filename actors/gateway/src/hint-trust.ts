/**
 * Hint trust: leaves out the hints that put a request before those of others, or change what it counts as
 * load, unless its tenant is trusted with them. Any client can send them.
 */

import type { ReadRequest } from '@homing/actors/tokenizer'
import type { TrustedHints } from '@homing/config'
import type { HttpHeaders } from '@homing/transport'
import { tenantOf } from './waiting-hints.ts'

/** Those that may be ignored, as clients know them. */
export const GUARDED_HINTS = [
  'strict_priority',
  'priority',
  'osl',
  'assume_kv_reuse',
  'track_prefill_tokens',
] as const
export type GuardedHint = (typeof GUARDED_HINTS)[number]

/** A request with the hints that count, and why the others do not; undefined: all of them count. */
export interface TrustedRequest {
  readonly read: ReadRequest
  readonly ignored: string | undefined
}

const TENANT_CHARACTERS_SHOWN = 64

export class HintTrust {
  readonly #trusted: 'all' | ReadonlySet<string>
  readonly #ignored: (hint: GuardedHint) => void

  /** `ignored`: is told of each hint that does not count. */
  constructor(trusted: TrustedHints, ignored: (hint: GuardedHint) => void) {
    this.#trusted = trusted === 'all' ? 'all' : new Set(trusted)
    this.#ignored = ignored
  }

  apply(read: ReadRequest, headers: HttpHeaders): TrustedRequest {
    const { priority, expectedOutputTokens, tracking } = read
    const hasHints = priority !== undefined || expectedOutputTokens !== undefined || tracking !== undefined
    if (this.#trusted === 'all' || !hasHints) return { read, ignored: undefined }
    const tenant = tenantOf(headers)
    if (this.#trusted.has(tenant)) return { read, ignored: undefined }
    const hints = guardedHints(read)
    if (hints.length === 0) return { read, ignored: undefined }
    for (const hint of hints) this.#ignored(hint)
    const whose = tenant === '' ? 'requests without a tenant' : tenant.slice(0, TENANT_CHARACTERS_SHOWN)
    return {
      read: { ...read, priority: undefined, expectedOutputTokens: undefined, tracking: undefined },
      ignored: `${hints.join(', ')} ignored: --router-trusted-hints does not name ${whose}`,
    }
  }
}

function guardedHints({ priority, expectedOutputTokens, tracking }: ReadRequest): readonly GuardedHint[] {
  const isGiven: Readonly<Record<GuardedHint, boolean>> = {
    strict_priority: (priority?.strict ?? 0) > 0,
    priority: (priority?.jumpSeconds ?? 0) > 0,
    osl: expectedOutputTokens !== undefined,
    assume_kv_reuse: tracking?.assumesReuse !== undefined,
    track_prefill_tokens: tracking?.prefillTokens !== undefined,
  }
  return GUARDED_HINTS.filter(hint => isGiven[hint])
}
