/** What a choice by `auto` predicts for the first token: those of its terms that are before it. */

import type { Choice } from './choice.ts'
import { POLICY_TERMS_MAX } from './policy.ts'

/** Milliseconds from sending, if candidate `index` is taken; 0 if the policy has no such terms. */
export function predictedFirstTokenMs({ policy, terms }: Choice, index: number): number {
  let sum = 0
  for (let t = 0; t < policy.terms.length; t++) {
    const { name } = policy.terms[t]!
    if (name === 'wait_ms' || name === 'prefill_ms') sum += terms.ofPolicy[index * POLICY_TERMS_MAX + t]!
  }
  return sum
}
