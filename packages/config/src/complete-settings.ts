/**
 * Settings of a program that embeds a command: values instead of texts, under their keys. Settings that the
 * program leaves out have the defaults of the command line. The same ranges and rules apply, and one pass
 * finds every fault.
 */

import type { Command, Machine, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { nearestName } from './nearest-name.ts'
import type { ListCheck } from './parse-settings.ts'
import { defaultValue, readSettingValue, type SettingValue, thisMachine } from './setting-value.ts'
import { SettingsError } from './settings-error.ts'

/** Some of the settings `S`; one that is undefined has its default. */
export type GivenSettings<S> = { readonly [K in keyof S]?: S[K] | undefined }

export interface CompleteOptions<S = unknown> {
  /** Default: this machine. */
  readonly machine?: Machine
  /** As for parseSettings. */
  readonly listChecks?: { readonly [K in keyof S]?: ListCheck }
  /** Settings that do nothing where these go: another value than the default is a fault. */
  readonly without?: readonly (keyof S)[]
}

/** All settings of `command`, frozen. Throws SettingsError with all faults together. */
export function completeSettings<T extends readonly SettingDescriptor[]>(
  command: Command<T>,
  given: GivenSettings<SettingsOf<T>>,
  options: CompleteOptions<SettingsOf<T>> = {},
): SettingsOf<T> {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new SettingsError(command.name, [`${kindOf(given)} is no object with settings`])
  const machine = options.machine ?? thisMachine()
  const faults = strangersIn(command.settings, given)
  const defaults: Record<string, SettingValue> = {}
  const values: Record<string, SettingValue> = {}
  const listChecks: Readonly<Record<string, ListCheck | undefined>> = options.listChecks ?? {}
  const entries: Readonly<Record<string, unknown>> = given
  for (const setting of command.settings) {
    const { key } = setting
    defaults[key] = defaultValue(setting, machine)
    values[key] = defaults[key]
    const entry = entries[key]
    if (entry === undefined) continue
    if (setting.kind !== 'list') {
      const reading = readSettingValue(setting, entry)
      if (reading.kind === 'fault') faults.push(`${key}: ${shown(entry)} ${reading.why}`)
      else values[key] = reading.value
      continue
    }
    if (!Array.isArray(entry)) {
      faults.push(`${key}: ${shown(entry)} is not a list of texts`)
      continue
    }
    const items = entry.map(item => {
      const reading = readSettingValue(setting, item)
      if (reading.kind === 'fault') faults.push(`${key}: ${shown(item)} ${reading.why}`)
      return reading.kind === 'fault' ? undefined : (item as string)
    })
    for (const fault of listChecks[key]?.(items) ?? []) faults.push(`${key}: ${fault}`)
    values[key] = Object.freeze(items.filter(item => item !== undefined))
  }

  const isGiven = (key: PropertyKey): boolean =>
    JSON.stringify(values[String(key)]) !== JSON.stringify(defaults[String(key)])
  for (const key of options.without ?? []) {
    if (isGiven(key)) faults.push(`${String(key)}: it has no effect here; leave it out`)
  }
  const settings = values as SettingsOf<T>
  const facts: RuleFacts<SettingsOf<T>> = { settings, isGiven }
  Object.freeze(Object.assign(values, command.implied?.(facts)))
  if (faults.length === 0) {
    faults.push(...(command.rules ?? []).flatMap(rule => rule(facts) ?? []))
  }
  if (faults.length > 0) throw new SettingsError(command.name, faults)
  return settings
}

function strangersIn(settings: readonly SettingDescriptor[], given: object): string[] {
  const keys = new Set(settings.map(({ key }) => key))
  return Object.keys(given)
    .filter(name => !keys.has(name))
    .map(name => {
      // Somebody who knows the command line may have written the option's name.
      const option = settings.find(setting => setting.name === name)
      const meant = option?.key ?? nearestName(name, keys)
      return `${name}: there is no such setting${meant === undefined ? '' : `; did you mean ${meant}?`}`
    })
}

function kindOf(given: unknown): string {
  if (Array.isArray(given)) return 'a list'
  return typeof given === 'function' ? 'a function' : shown(given)
}

function shown(entry: unknown): string {
  return typeof entry === 'string' ? JSON.stringify(entry) : String(entry)
}
