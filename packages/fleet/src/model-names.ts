/**
 * Model names: which model serves a name that a client uses, with the aliases of the operator. Plain data,
 * made anew with every fleet, so that it can be sent to other threads.
 */

import type { ModelAlias } from '@homing/config'
import type { Fleet } from './fleet.ts'

export interface ModelNames {
  /** Model by alias. */
  readonly whole: ReadonlyMap<string, string>
  /** Beginnings of aliases with their models, the longest first. */
  readonly beginnings: readonly (readonly [beginning: string, model: string])[]
}

export const NO_ALIASES: ModelNames = { whole: new Map(), beginnings: [] }

/**
 * Of the models of an alias: the first that a worker serves now; else the first that one lists; else the
 * first.
 */
export function modelNames({ workers }: Fleet, aliases: readonly ModelAlias[]): ModelNames {
  if (aliases.length === 0) return NO_ALIASES
  const namesOf = (some: Fleet['workers']) =>
    new Set(some.flatMap(({ models }) => models.map(({ name }) => name)))
  const served = namesOf(workers.filter(({ state }) => state === 'up'))
  const listed = namesOf(workers)
  const modelOf = ({ models }: ModelAlias): string =>
    models.find(model => served.has(model)) ?? models.find(model => listed.has(model)) ?? models[0]!
  const whole = new Map<string, string>()
  const beginnings: [string, string][] = []
  for (const alias of aliases) {
    if (alias.isBeginning) beginnings.push([alias.name, modelOf(alias)])
    else whole.set(alias.name, modelOf(alias))
  }
  beginnings.sort(([a], [b]) => b.length - a.length)
  return { whole, beginnings }
}

/**
 * An alias that is a whole name always counts; one that is a beginning, only for names that no worker lists.
 */
export function servedModel(
  name: string,
  { whole, beginnings }: ModelNames,
  isListed: (name: string) => boolean,
): string {
  const model = whole.get(name)
  if (model !== undefined) return model
  if (beginnings.length === 0 || isListed(name)) return name
  return beginnings.find(([beginning]) => name.startsWith(beginning))?.[1] ?? name
}
