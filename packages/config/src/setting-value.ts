/**
 * One value of one setting: from text (command line, environment) or from a YAML value (file), within
 * its range; and back to text, as help and messages show it.
 */

import { availableParallelism } from 'node:os'
import type { ComputedDefault, ListSetting, Machine, SettingDescriptor } from './descriptor.ts'
import { nearestName } from './nearest-name.ts'

export type SettingValue = string | number | boolean | undefined | readonly string[]

/** A value, or why there is none: the rest of a sentence that begins with the value. */
export type Reading<T> =
  | { readonly kind: 'value'; readonly value: T }
  | { readonly kind: 'fault'; readonly why: string }

const DURATION_UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }
const SIZE_UNIT_BYTES: Readonly<Record<string, number>> = {
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
}

/** The machine this process runs on. */
export function thisMachine(): Machine {
  return { cores: availableParallelism() }
}

/** Reads text. For a list, the text is one item. */
export function readSettingText(setting: SettingDescriptor, text: string): Reading<SettingValue> {
  switch (setting.kind) {
    case 'integer':
    case 'number':
      return readNumber(setting, text)
    case 'duration': {
      const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text)
      if (match === null) return fault("is not a duration; use '500ms', '30s', '5m', or a number of seconds")
      const ms = Number(match[1]) * DURATION_UNIT_MS[match[2] ?? 's']!
      return within(ms, setting.min, setting.max, durationText)
    }
    case 'size': {
      const match = /^(\d+(?:\.\d+)?)(KiB|MiB|GiB)?$/.exec(text)
      if (match === null) return fault("is not a size; use '512KiB', '64MiB', '1GiB', or a number of bytes")
      const bytes = Math.round(Number(match[1]) * (match[2] === undefined ? 1 : SIZE_UNIT_BYTES[match[2]]!))
      return within(bytes, setting.min, setting.max, sizeText)
    }
    case 'flag': {
      const lower = text.toLowerCase()
      if (['true', '1', 'yes', 'on'].includes(lower)) return value(true)
      if (['false', '0', 'no', 'off'].includes(lower)) return value(false)
      return fault('is neither true nor false')
    }
    case 'choice':
      return setting.choices.includes(text) ? value(text) : fault(faultOfChoice(setting.choices, text))
    case 'text':
    case 'list': {
      if (text === '')
        return setting.kind === 'text' && setting.default === '' ? value('') : fault('is empty')
      const why = setting.check?.(text)
      if (why !== undefined) return fault(why)
      return value(setting.kind === 'text' ? (setting.read?.(text) ?? text) : text)
    }
  }
}

/** Checks a value of a program, in the unit of the setting's key. For a list, the value is one item. */
export function readSettingValue(setting: SettingDescriptor, given: unknown): Reading<SettingValue> {
  switch (setting.kind) {
    case 'integer':
    case 'number':
    case 'duration':
    case 'size': {
      const what =
        setting.kind === 'duration' ? ' of milliseconds' : setting.kind === 'size' ? ' of bytes' : ''
      if (typeof given !== 'number' || Number.isNaN(given)) return fault(`is not a number${what}`)
      if (setting.kind !== 'number' && setting.kind !== 'duration' && !Number.isInteger(given))
        return fault('is not a whole number')
      return within(given, setting.min, setting.max, String)
    }
    case 'flag':
      return typeof given === 'boolean' ? value(given) : fault('is neither true nor false')
    default:
      // Texts are read as those of the command line are.
      return typeof given === 'string' ? readSettingText(setting, given) : fault('is not a text')
  }
}

/** The items of a list as an environment variable or a single YAML text holds them. */
export function splitItems(separator: ListSetting['separator'], text: string): readonly string[] {
  const items = text.split({ comma: ',', 'comma or space': /[,\s]+/, line: '\n' }[separator])
  return items.map(item => item.trim()).filter(item => item !== '')
}

/** A host as sockets take it: an IPv6 address may be given as it stands in a URL, in brackets. */
export function hostWithoutBrackets(text: string): string {
  return text.replace(/^\[(.*)\]$/, '$1')
}

/** The default on `machine`; a list has the empty list. */
export function defaultValue(setting: SettingDescriptor, machine: Machine): SettingValue {
  if (setting.kind === 'list') return Object.freeze([])
  return isComputed(setting.default) ? setting.default.of(machine) : setting.default
}

/** The default as help and documentation show it; without a machine, a computed one is described. */
export function defaultText(setting: SettingDescriptor, machine?: Machine): string {
  if (setting.kind === 'list') return setting.unsetMeans ?? 'none'
  const preset = setting.default
  if (preset === undefined) return ('unsetMeans' in setting ? setting.unsetMeans : undefined) ?? 'none'
  if (isComputed(preset)) {
    return machine === undefined ? preset.says : `${preset.of(machine)}, which is ${preset.says}`
  }
  if (preset === '') return 'empty'
  const text = valueText(setting, preset)
  return preset === 0 && 'zeroMeans' in setting && setting.zeroMeans !== undefined
    ? `${text}, ${setting.zeroMeans}`
    : text
}

/** What may be given, in words; undefined where the kind says it all. */
export function rangeText(setting: SettingDescriptor): string | undefined {
  switch (setting.kind) {
    case 'integer':
    case 'number':
    case 'duration':
    case 'size':
      return `${valueText(setting, setting.min)} … ${valueText(setting, setting.max)}`
    case 'choice':
      return setting.choices.join(', ')
    default:
      return undefined
  }
}

/** What stands for the value in the help: 'N', 'TIME', 'BYTES', 'URL'; '' for a flag. */
export function placeholderOf(setting: SettingDescriptor): string {
  switch (setting.kind) {
    case 'integer':
    case 'number':
      return 'N'
    case 'duration':
      return 'TIME'
    case 'size':
      return 'BYTES'
    case 'choice':
      return 'CHOICE'
    case 'flag':
      return ''
    default:
      return setting.placeholder
  }
}

/** A value in the unit that people read best. */
function valueText(setting: SettingDescriptor, of: SettingValue): string {
  if (typeof of !== 'number') return Array.isArray(of) ? of.join(', ') : String(of)
  if (setting.kind === 'duration') return durationText(of)
  if (setting.kind === 'size') return sizeText(of)
  return String(of)
}

function readNumber(
  setting: Extract<SettingDescriptor, { kind: 'integer' | 'number' }>,
  text: string,
): Reading<number> {
  if (!/^-?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text)) return fault('is not a number')
  const number = Number(text)
  if (setting.kind === 'integer' && !Number.isInteger(number)) return fault('is not a whole number')
  return within(number, setting.min, setting.max, String)
}

function within(number: number, min: number, max: number, show: (number: number) => string): Reading<number> {
  if (number >= min && number <= max) return value(number)
  return fault(`is out of range ${show(min)} … ${show(max)}`)
}

function durationText(ms: number): string {
  if (ms === 0) return '0'
  for (const [unit, unitMs] of [
    ['h', 3_600_000],
    ['m', 60_000],
    ['s', 1000],
  ] as const) {
    if (ms % unitMs === 0) return `${ms / unitMs}${unit}`
  }
  return `${ms}ms`
}

function sizeText(bytes: number): string {
  for (const [unit, unitBytes] of Object.entries(SIZE_UNIT_BYTES).reverse()) {
    if (bytes >= unitBytes && bytes % unitBytes === 0) return `${bytes / unitBytes}${unit}`
  }
  return String(bytes)
}

function isComputed(preset: unknown): preset is ComputedDefault {
  return typeof preset === 'object' && preset !== null
}

function value<T>(of: T): Reading<T> {
  return { kind: 'value', value: of }
}

function fault(why: string): Reading<never> {
  return { kind: 'fault', why }
}

function faultOfChoice(choices: readonly string[], text: string): string {
  const meant = nearestName(text, choices)
  const hint = meant === undefined ? '' : `; did you mean ${meant}?`
  return `is not one of ${choices.join(', ')}${hint}`
}
