import { auto } from './policies/auto.ts'
import { estTtft } from './policies/est-ttft.ts'
import { linear } from './policies/linear.ts'
import { product } from './policies/product.ts'
import { threshold } from './policies/threshold.ts'
import type { Policy, PolicyName } from './policy.ts'

/** The policies by name. */
export const POLICIES: Readonly<Record<PolicyName, Policy>> = {
  auto,
  linear,
  product,
  'est-ttft': estTtft,
  threshold,
}
