/**
 * Column: a policy as a user names it, and the settings of a cell that follow from the name.
 *
 *   product           the policy of that name of @homing/selection, in mode kv
 *   linear:8          with an overlap weight of 8
 *   auto:without-evict_ms   without one of its terms: what the term is worth
 *   auto-unguarded    auto without its guard
 *   round-robin       a mode that ignores the caches
 *   session           a rule of the simulator's own
 *   product@oracle    the router reads the true state of the engines: the price of not knowing; not for auto,
 *                     whose figures are learned
 */

import { CodedError } from '@homing/base'
import { GUARD_SHARE_DEFAULT, POLICIES } from '@homing/selection'
import type { CellSelection } from './cell-types.ts'

/** There is no policy of that name. */
export class UnknownPolicyError extends CodedError {
  readonly code = 'HOMING_SIMULATE_UNKNOWN_POLICY'

  constructor(policy: string, reason: string) {
    super(`cannot simulate the policy ${JSON.stringify(policy)}: ${reason}`, { policy, reason })
  }
}

export interface Column {
  /** As it stands in tables; short and unique. */
  readonly name: string
  readonly selection: CellSelection
}

const BASE = { mode: 'kv', policy: 'linear', overlapWeight: 1, temperature: 0 } as const

const SELECTIONS: Readonly<Record<string, CellSelection>> = {
  random: { ...BASE, mode: 'random' },
  'round-robin': { ...BASE, mode: 'round-robin' },
  'power-of-two': { ...BASE, mode: 'power-of-two' },
  'least-loaded': { ...BASE, mode: 'least-loaded' },
  session: { ...BASE, rule: 'session' },
  overlap: { ...BASE, rule: 'overlap' },
  threshold: { ...BASE, policy: 'threshold' },
  auto: { ...BASE, policy: 'auto', guardShare: GUARD_SHARE_DEFAULT },
  'auto-unguarded': { ...BASE, policy: 'auto' },
  linear: BASE,
  product: { ...BASE, policy: 'product' },
  'est-ttft': { ...BASE, policy: 'est-ttft' },
}

/** Whether it places by the policy auto, which has a load model. */
export function isAutoSelection({ rule, mode, policy }: CellSelection): boolean {
  return rule === undefined && mode === 'kv' && policy === 'auto'
}

/** Other names for the same. */
const ALIASES: Readonly<Record<string, string>> = {
  least: 'least-loaded',
  p2c: 'power-of-two',
  'kv-cost': 'linear',
}

export const COLUMN_NAMES: readonly string[] = Object.keys(SELECTIONS)

/** The policies that have no parameter to tune: what a new one is compared with. */
export const FIXED_COLUMNS: readonly string[] = [
  'round-robin',
  'power-of-two',
  'least-loaded',
  'session',
  'threshold',
  'linear',
  'product',
  'est-ttft',
]

/** Cache-blind, and the one that a policy must beat: beating round-robin proves little. */
export const BASELINE_COLUMN = 'least-loaded'

const WEIGHT_MAX = 1e6

/** Reads NAME[:WEIGHT][@oracle], or auto:without-TERM. Throws UnknownPolicyError. */
export function parseColumn(text: string): Column {
  const match = /^([a-z0-9-]+)(?::([^@]*))?(?:@(.*))?$/.exec(text)
  const name = match?.[1] === undefined ? undefined : (ALIASES[match[1]] ?? match[1])
  if (match === null || name === undefined || !Object.hasOwn(SELECTIONS, name)) {
    throw new UnknownPolicyError(text, `use ${COLUMN_NAMES.join(', ')}`)
  }
  let selection = SELECTIONS[name]!
  let label = name
  const [, , weightText, view] = match
  const term = name === 'auto' ? /^without-(.*)$/.exec(weightText ?? '')?.[1] : undefined
  if (term !== undefined) {
    const terms = POLICIES.auto.terms.map(each => each.name)
    if (!terms.includes(term)) throw new UnknownPolicyError(text, `the terms of auto are ${terms.join(', ')}`)
    selection = { ...selection, withoutTerm: term }
    label = `auto:without-${term}`
  } else if (weightText !== undefined) {
    const weight = weightText === '' ? Number.NaN : Number(weightText)
    if (name !== 'linear') throw new UnknownPolicyError(text, `only linear has a weight, as in linear:8`)
    if (!(weight >= 0 && weight <= WEIGHT_MAX)) {
      throw new UnknownPolicyError(
        text,
        `the weight ${JSON.stringify(weightText)} is not a number within 0 … ${WEIGHT_MAX}`,
      )
    }
    selection = { ...selection, overlapWeight: weight }
    label = `${name}:${weight}`
  }
  if (view !== undefined) {
    if (view !== 'oracle') {
      throw new UnknownPolicyError(
        text,
        `${JSON.stringify(view)} is no way to know; only @oracle can be named`,
      )
    }
    if (selection.policy === 'auto')
      throw new UnknownPolicyError(text, `${name} counts on what it has learned itself; use ${name}`)
    selection = { ...selection, oracleView: true }
    label = `${label}@oracle`
  }
  return { name: label, selection }
}
