/** What a choice by `auto` predicts for the first token: those of its terms that are before it. */

import type { Choice } from './choice.ts'
import { POLICY_TERMS_MAX, type TermDescription } from './policy.ts'

const BEFORE_FIRST_TOKEN: ReadonlySet<string> = new Set(['wait_ms', 'prefill_ms'])

/** Of the last list of terms that was asked about: a router has one policy. */
let lastTerms: readonly TermDescription[] = []
let lastOffsets: readonly number[] = []

/** Milliseconds from sending, if candidate `index` is taken; 0 if the policy has no such terms. */
export function predictedFirstTokenMs({ policy, terms }: Choice, index: number): number {
  if (policy.terms !== lastTerms) {
    lastTerms = policy.terms
    lastOffsets = [...lastTerms.keys()].filter(t => BEFORE_FIRST_TOKEN.has(lastTerms[t]!.name))
  }
  let sum = 0
  for (let at = 0; at < lastOffsets.length; at++)
    sum += terms.ofPolicy[index * POLICY_TERMS_MAX + lastOffsets[at]!]!
  return sum
}
