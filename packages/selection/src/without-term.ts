/**
 * Ablation: a policy without one of its terms, to see what the term is worth. For benches; a router uses
 * policies as they are.
 */

import { POLICY_TERMS_MAX, type Policy } from './policy.ts'

/**
 * `policy` with costs that leave out the term of that name; its cost must be the sum of its terms, in each of
 * its rules. RangeError without such a term.
 */
export function withoutTerm(policy: Policy, name: string): Policy {
  const term = policy.terms.findIndex(each => each.name === name)
  if (term < 0) {
    const known = policy.terms.map(each => each.name).join(', ')
    throw new RangeError(`cannot leave ${name} out of ${policy.name}: its terms are ${known}`)
  }
  const isLeft = (other: string): boolean => other !== name
  return {
    ...policy,
    rules: policy.rules.map(rule => ({
      ...rule,
      formula: policy.terms
        .map(each => each.name)
        .filter(isLeft)
        .join(' + '),
    })),
    score(candidates, request, weights, terms) {
      const rule = policy.score(candidates, request, weights, terms)
      const { cost, ofPolicy } = terms
      // Summed anew: what is small beside the term must not be lost in a difference.
      cost.fill(0, 0, candidates.count)
      for (let t = 0; t < policy.terms.length; t++) {
        if (t === term) continue
        for (let i = 0; i < candidates.count; i++) cost[i]! += ofPolicy[i * POLICY_TERMS_MAX + t]!
      }
      return rule
    },
  }
}
