/**
 * Reads the settings of a command from its arguments, the environment and a file, in one pass that finds
 * every fault.
 *
 *   command line  >  environment HOMING_*  >  DYN_* aliases  >  file  >  default
 *
 * Invariants
 *   I1  Nothing is accepted and silently ignored. An unknown option or file key is a fault. These are
 *       warnings: options of other routers that have no counterpart here, and `HOMING_*` variables that look
 *       like a misspelling.
 *   I2  A `DYN_*` variable never stops the command: one that has no counterpart, is overruled, cannot be
 *       read, or contradicts other settings is a warning. Each that is set gives exactly one.
 *   I3  The settings are frozen; their sources say where each came from.
 *   I4  A variable that Kubernetes made of the name of a Service is none of ours (service-links.ts).
 *
 * When an option is given twice, the last one counts, so that a script can append; a list collects. A list
 * given in one place replaces the list of another place.
 */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { openName, openText } from '@homing/base'
import type * as yaml from 'yaml'
import {
  type Command,
  environmentName,
  type ForeignChoice,
  type Machine,
  type SettingDescriptor,
  type SettingSource,
  type SettingsOf,
} from './descriptor.ts'
import { nearestName } from './nearest-name.ts'
import { serviceLinks } from './service-links.ts'
import { defaultValue, readSettingText, type SettingValue, splitItems, thisMachine } from './setting-value.ts'
import { SettingsError } from './settings-error.ts'

export interface ParsedSettings<S> {
  /** Frozen. */
  readonly settings: S
  /** Sentences for the log; nothing in them stops the command. */
  readonly warnings: readonly string[]
  readonly sources: Readonly<Record<keyof S, SettingSource>>
}

export interface ParseOptions<S = unknown> {
  /** Read instead of what `--config` or HOMING_CONFIG names. */
  readonly configFile?: string
  /** Default: this machine. */
  readonly machine?: Machine
  /**
   * Further checks of lists, by key, for callers that know more than the table: faults of the items and
   * between them, a sentence each. An item is undefined if it has a fault already.
   */
  readonly listChecks?: { readonly [K in keyof S]?: ListCheck }
}

/** Faults of the items of a list and between them; an item is undefined if it has a fault already. */
export type ListCheck = (items: readonly (string | undefined)[]) => readonly string[]

/** The option that names the file; every command has it. */
export const CONFIG_OPTION = 'config'
export const CONFIG_VARIABLE = 'HOMING_CONFIG'
const HELP: readonly string[] = ['--help', '-h']

/** What one place gives: the texts of a setting, already split for a list. */
interface Given {
  readonly setting: SettingDescriptor
  readonly texts: readonly string[]
  readonly source: SettingSource
  /** It is an empty list, as only a file can have it. */
  readonly isEmptyList?: boolean
}

/**
 * Parses the settings of `command`. `argv` begins behind the command's name. Throws SettingsError with
 * all faults together: unknown options and file keys (with the nearest known name), values of the
 * wrong kind or out of range, an unreadable file, and the command's own rules.
 */
export function parseSettings<T extends readonly SettingDescriptor[]>(
  command: Command<T>,
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  options: ParseOptions<SettingsOf<T>> = {},
): ParsedSettings<SettingsOf<T>> {
  const faults: string[] = []
  const warnings: string[] = []
  const byName = settingsByName(command.settings)

  const line = readCommandLine(command, byName, argv)
  faults.push(...line.faults)
  const environment = readEnvironment(command, env)
  const configFile = options.configFile ?? line.configFile ?? (env[CONFIG_VARIABLE] || undefined)
  const file = configFile === undefined ? [] : readFile(byName, configFile, faults)
  warnings.push(...line.warnings, ...environment.warnings)

  const machine = options.machine ?? thisMachine()
  const listChecks: Readonly<Record<string, ListCheck | undefined>> = options.listChecks ?? {}
  const read = (given: readonly Given[]) => readGiven(command, given, machine, listChecks)
  let given = [...file, ...environment.given, ...line.given]
  let reading = read(given)
  // Variables of another program give way, those that come first in the table before others.
  while (faults.length === 0 && reading.faults.length > 0) {
    const fewer = (others: readonly Given[]) => read(others).faults.length < reading.faults.length
    const borrowed = given.filter(isBorrowed)
    const culprit = borrowed.find(one => fewer(given.filter(other => other !== one)))
    const culprits =
      culprit !== undefined ? [culprit] : fewer(given.filter(one => !isBorrowed(one))) ? borrowed : []
    if (culprits.length === 0) break
    for (const { source } of culprits) {
      const at = warnings.findIndex(warning => warning.startsWith(`${source.name} is read as `))
      warnings.splice(at, 1, `${source.name} is ignored: ${reading.faults[0]}`)
    }
    given = given.filter(one => !culprits.includes(one))
    reading = read(given)
  }
  faults.push(...reading.faults)
  if (faults.length > 0) throw new SettingsError(command.name, faults)
  return {
    settings: reading.values as SettingsOf<T>,
    warnings: [...warnings, ...reading.warnings],
    sources: Object.freeze(reading.sources) as Record<keyof SettingsOf<T>, SettingSource>,
  }
}

interface GivenReading {
  readonly values: Readonly<Record<string, SettingValue>>
  readonly sources: Record<string, SettingSource>
  readonly faults: readonly string[]
  readonly warnings: readonly string[]
}

/** `given`: a later one counts more. */
function readGiven(
  command: Command,
  given: readonly Given[],
  machine: Machine,
  listChecks: Readonly<Record<string, ListCheck | undefined>>,
): GivenReading {
  const faults: string[] = []
  const warnings: string[] = []
  const values: Record<string, SettingValue> = {}
  const sources: Record<string, SettingSource> = {}
  for (const setting of command.settings) {
    values[setting.key] = defaultValue(setting, machine)
    sources[setting.key] = { kind: 'default', name: setting.name }
  }
  for (const { setting, texts, source, isEmptyList } of given) {
    const items: (string | undefined)[] = []
    for (const text of texts) {
      const foreign = foreignChoice(setting, text)
      if (foreign !== undefined && !isBorrowed({ source }))
        warnings.push(`${source.name} ${text}: ${foreign.why}`)
      const reading = readSettingText(setting, foreign?.means ?? text)
      items.push(reading.kind === 'fault' ? undefined : text)
      if (reading.kind === 'fault') faults.push(`${source.name}: ${quoted(text)} ${reading.why}`)
      else if (setting.kind !== 'list') values[setting.key] = reading.value
    }
    if (setting.kind === 'list') {
      // A list of commas is a slip. An empty one means none, unless the default is more than that.
      const isNone = isEmptyList === true && setting.mustNameOne !== true
      if (texts.length === 0 && !isNone)
        faults.push(`${source.name}: the list is empty; leave it out, or name one`)
      for (const fault of listChecks[setting.key]?.(items) ?? []) faults.push(`${source.name}: ${fault}`)
      values[setting.key] = Object.freeze(items.filter(item => item !== undefined))
    }
    sources[setting.key] = source
  }

  const settings = values as SettingsOf<readonly SettingDescriptor[]>
  const facts = { settings, isGiven: (key: PropertyKey) => sources[String(key)]?.kind !== 'default' }
  Object.freeze(Object.assign(values, command.implied?.(facts)))
  if (faults.length === 0) {
    faults.push(...(command.rules ?? []).flatMap(rule => rule(facts) ?? []))
    warnings.push(...(command.remarks ?? []).flatMap(remark => remark(facts) ?? []))
  }
  return { values, sources, faults, warnings }
}

/**
 * True when the arguments ask for the help text instead of a run; values do not matter then. Throws
 * SettingsError if they also name an unknown option: a user who mistypes an option beside --help should be
 * told.
 */
export function asksForHelp(command: Command, argv: readonly string[]): boolean {
  const others = argv.filter(argument => !HELP.includes(argument))
  if (others.length === argv.length) return false
  const { strangers } = readCommandLine(command, settingsByName(command.settings), others)
  if (strangers.length > 0) throw new SettingsError(command.name, strangers)
  return true
}

function settingsByName(settings: readonly SettingDescriptor[]): Map<string, SettingDescriptor> {
  const byName = new Map<string, SettingDescriptor>()
  for (const setting of settings) {
    for (const name of [setting.name, ...(setting.aliases ?? [])]) byName.set(name, setting)
  }
  return byName
}

interface CommandLine {
  readonly given: readonly Given[]
  readonly configFile: string | undefined
  readonly faults: readonly string[]
  readonly warnings: readonly string[]
  /** The faults about options and arguments that do not exist. */
  readonly strangers: readonly string[]
}

function readCommandLine(
  { operands, foreign = [] }: Command,
  byName: ReadonlyMap<string, SettingDescriptor>,
  argv: readonly string[],
): CommandLine {
  const given: Given[] = []
  const faults: string[] = []
  const warnings: string[] = []
  const strangers: string[] = []
  const strange = (fault: string): void => {
    faults.push(fault)
    strangers.push(fault)
  }
  const lists = new Map<SettingDescriptor, string[]>()
  let configFile: string | undefined
  const collect = (setting: SettingDescriptor, text: string, source: SettingSource): void => {
    const texts = lists.get(setting) ?? []
    if (texts.length === 0) given.push({ setting, texts, source })
    lists.set(setting, texts)
    texts.push(text)
  }

  for (let i = 0; i < argv.length; i++) {
    const argument = argv[i]!
    const operand = operands === undefined ? undefined : byName.get(operands)
    if (operand !== undefined && !argument.startsWith('-')) {
      collect(operand, argument, { kind: 'command line', name: `--${operands}` })
      continue
    }
    if (!argument.startsWith('--') || argument === '--') {
      strange(`unexpected argument ${quoted(argument)}: options begin with --`)
      continue
    }
    const equals = argument.indexOf('=')
    const option = equals < 0 ? argument : argument.slice(0, equals)
    const attached = equals < 0 ? undefined : argument.slice(equals + 1)
    const name = option.slice(2)
    const setting = byName.get(name)
    const source: SettingSource = { kind: 'command line', name: option }

    const negated = setting === undefined && name.startsWith('no-') ? byName.get(name.slice(3)) : undefined
    if (negated?.kind === 'flag') {
      if (attached === undefined) given.push({ setting: negated, texts: ['false'], source })
      else faults.push(`${option} takes no value; leave out ${quoted(attached)}`)
      continue
    }
    if (negated !== undefined) {
      strange(`unknown option ${option}: --${negated.name} takes a value and cannot be turned off`)
      continue
    }
    if (setting?.kind === 'flag') {
      given.push({ setting, texts: [attached ?? 'true'], source })
      continue
    }
    if (setting === undefined && name !== CONFIG_OPTION) {
      const stranger = foreign.find(one => name === one.name || name === `no-${one.name}`)
      if (stranger === undefined)
        strange(`unknown option --${openName(name)}${didYouMean(name, optionNames(byName), '--')}`)
      else warnings.push(`${option} is ignored: ${stranger.instead}`)
      // Its value, if it has one, is not a fault of its own.
      if (attached === undefined && argv[i + 1]?.startsWith('--') === false) i++
      continue
    }
    const text = attached ?? argv[i + 1]
    if (text === undefined || (attached === undefined && text.startsWith('--'))) {
      faults.push(`${option} needs a value`)
      continue
    }
    if (attached === undefined) i++
    if (setting === undefined) {
      configFile = text
    } else if (setting.kind === 'list') {
      collect(setting, text, source)
    } else {
      given.push({ setting, texts: [text], source })
    }
  }
  return { given, configFile, faults, warnings, strangers }
}

const NO_VALUE =
  'it is the address of a Service, as Kubernetes puts it into pods; set enableServiceLinks: false for this one'

function readEnvironment(
  { settings, foreign = [] }: Command,
  env: Readonly<Record<string, string | undefined>>,
): { readonly given: readonly Given[]; readonly warnings: readonly string[] } {
  const given: Given[] = []
  const warnings: string[] = []
  const known = new Set([CONFIG_VARIABLE])
  const links = serviceLinks(env)
  for (const setting of settings) {
    const own = environmentName(setting)
    known.add(own)
    if (links.has(own)) warnings.push(`${own} is ignored: ${NO_VALUE}`)
    let taken = env[own] && !links.has(own) ? own : undefined
    if (taken !== undefined) given.push(fromVariable(setting, own, env[own]!))
    for (const alias of setting.envAliases ?? []) {
      known.add(alias.name)
      const text = env[alias.name]
      if (!text) continue
      if (taken !== undefined) {
        warnings.push(`${alias.name} is overruled by ${taken}; remove it`)
        continue
      }
      const meaning =
        alias.read === undefined ? (foreignChoice(setting, text.trim())?.means ?? text) : alias.read(text)
      if (meaning === undefined) {
        warnings.push(`${alias.name}: ${quoted(text)} contains no value of ${own}; ignored`)
        continue
      }
      const one = fromVariable(setting, alias.name, meaning + (alias.suffix ?? ''))
      const fault = isBorrowed(one) ? faultOfItems(one) : undefined
      if (fault !== undefined) {
        warnings.push(`${alias.name}: ${quoted(text)} ${fault}; ignored`)
        continue
      }
      taken = alias.name
      const value = meaning === text ? '' : `=${meaning}`
      if (alias.isStandard !== true) warnings.push(`${alias.name} is read as ${own}${value}; rename it`)
      given.push(one)
    }
  }

  for (const { env: name, instead } of foreign) {
    if (env[name] && !known.has(name)) warnings.push(`${name} is ignored: ${instead}`)
    known.add(name)
  }
  const withoutCounterpart = Object.keys(env)
    .filter(name => name.startsWith(BORROWED) && env[name] && !known.has(name))
    .sort()
  if (withoutCounterpart.length > 0) {
    warnings.push(`${withoutCounterpart.join(', ')}: not a setting of this command; ignored`)
  }
  for (const name of Object.keys(env).sort()) {
    if (!name.startsWith('HOMING_') || !env[name] || known.has(name) || links.has(name)) continue
    const nearest = nearestName(
      name.slice(7),
      [...known].filter(isOurs).map(name => name.slice(7)),
    )
    if (nearest !== undefined) {
      warnings.push(
        `${name} is not a setting of this command and is ignored; did you mean HOMING_${nearest}?`,
      )
    }
  }
  return { given, warnings }
}

/** Variables of another program, that may be set for others than us. */
const BORROWED = 'DYN_'

function isBorrowed({ source }: Pick<Given, 'source'>): boolean {
  return source.kind === 'environment' && source.name.startsWith(BORROWED)
}

/** Of the first item that cannot be read. */
function faultOfItems({ setting, texts }: Given): string | undefined {
  for (const text of texts) {
    const reading = readSettingText(setting, text)
    if (reading.kind === 'fault') return reading.why
  }
  return undefined
}

function foreignChoice(setting: SettingDescriptor, text: string): ForeignChoice | undefined {
  if (setting.kind !== 'choice' || setting.foreignChoices === undefined) return undefined
  return Object.hasOwn(setting.foreignChoices, text) ? setting.foreignChoices[text] : undefined
}

function readFile(
  byName: ReadonlyMap<string, SettingDescriptor>,
  path: string,
  faults: string[],
): readonly Given[] {
  let content: unknown
  // Loaded here: 72 modules, which a command without such a file does without.
  const { parseDocument, YAMLParseError } = createRequire(import.meta.url)('yaml') as typeof yaml
  try {
    const document = parseDocument(readFileSync(path, 'utf8'))
    if (document.errors[0] !== undefined) throw document.errors[0]
    content = document.toJS()
  } catch (error) {
    const why = error instanceof YAMLParseError ? faultOfText(error) : faultOfFile(error)
    faults.push(`cannot read the settings file ${path}: ${why}`)
    return []
  }
  if (content === null || content === undefined) return []
  if (typeof content !== 'object' || Array.isArray(content)) {
    faults.push(`cannot read the settings file ${path}: it is not a mapping of names to values`)
    return []
  }

  const given: Given[] = []
  for (const [name, entry] of Object.entries(content)) {
    const setting = byName.get(name)
    const where = `${name} in ${path}`
    if (setting === undefined) {
      faults.push(`unknown setting ${openName(name)} in ${path}${didYouMean(name, byName.keys(), '')}`)
      continue
    }
    if (entry === null) continue
    const texts = textsOfEntry(setting, entry)
    if (texts === undefined) {
      const wanted = setting.kind === 'list' ? 'a value or a list of values' : 'one value'
      faults.push(`${where}: needs ${wanted}`)
      continue
    }
    const isEmptyList = Array.isArray(entry) && entry.length === 0
    given.push({ setting, texts, source: { kind: 'file', name: where }, isEmptyList })
  }
  return given
}

/** Messages of the YAML parser may repeat a part of the text. */
function faultOfText({ linePos, code }: yaml.YAMLParseError): string {
  const [at] = linePos ?? []
  return `${at === undefined ? '' : `line ${at.line}: `}it is no YAML (${code})`
}

function faultOfFile(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message.split('\n')[0]! : String(thrown)
}

function textsOfEntry(setting: SettingDescriptor, entry: unknown): readonly string[] | undefined {
  if (Array.isArray(entry)) {
    return setting.kind === 'list' && entry.every(isScalar) ? entry.map(String) : undefined
  }
  if (!isScalar(entry)) return undefined
  return setting.kind === 'list' ? splitItems(setting.separator, String(entry)) : [String(entry)]
}

function fromVariable(setting: SettingDescriptor, name: string, text: string): Given {
  const texts = setting.kind === 'list' ? splitItems(setting.separator, text) : [text.trim()]
  return { setting, texts, source: { kind: 'environment', name } }
}

function didYouMean(name: string, names: Iterable<string>, prefix: string): string {
  const nearest = nearestName(name, names)
  return nearest === undefined ? '' : `; did you mean ${prefix}${nearest}?`
}

function optionNames(byName: ReadonlyMap<string, SettingDescriptor>): readonly string[] {
  const names = [CONFIG_OPTION, 'help']
  for (const [name, setting] of byName) {
    names.push(name)
    if (setting.kind === 'flag') names.push(`no-${name}`)
  }
  return names
}

function isOurs(variable: string): boolean {
  return variable.startsWith('HOMING_')
}

function isScalar(entry: unknown): boolean {
  return typeof entry === 'string' || typeof entry === 'number' || typeof entry === 'boolean'
}

/** People put keys in the place of names and files. */
function quoted(text: string): string {
  return JSON.stringify(openText(text))
}
