/** What a choice by `auto` predicts for the first token: those of its terms that are before it. */

import type { Choice } from './types.ts'

const TERMS: readonly string[] = ['wait_ms', 'prefill_ms']

/** Milliseconds from sending, if candidate `index` is taken; 0 if the policy has no such terms. */
export function predictedFirstTokenMs({ policy, terms }: Choice, index: number): number {
  let sum = 0
  for (let t = 0; t < policy.terms.length; t++)
    if (TERMS.includes(policy.terms[t]!.name)) sum += terms.ofPolicy[t]![index]!
  return sum
}
