/**
 * Descriptor of one setting: its names, kind, range, default and help.
 *
 * A command has a table of these. Everything else (the parser, the help, docs/configuration.md) reads
 * the table, and the type of the parsed settings follows from it: see `SettingsOf`.
 */

/** What a computed default may depend on. */
export interface Machine {
  /** Processors that this process may use, ≥ 1. */
  readonly cores: number
}

/** A default that depends on the machine; `says` is how people read it. */
export interface ComputedDefault {
  readonly says: string
  readonly of: (machine: Machine) => number
}

/** Another variable that is read when the setting's own is not set; using it gives one warning. */
export interface EnvironmentAlias {
  readonly name: string
  /** Written behind its value before that is parsed: 'MiB' turns 64 into 64MiB. */
  readonly suffix?: string
  /**
   * For a variable whose values have a form of their own: translates its value into one of the setting, or
   * returns undefined if there is none, which is a warning and not a fault.
   */
  readonly read?: (text: string) => string | undefined
  /** Its name is a standard of its field: nothing is to be renamed, so there is no warning. */
  readonly isStandard?: boolean
}

interface SettingNames {
  /** Property of the parsed settings, with its unit: `shutdownTimeoutMs`. */
  readonly key: string
  /** Option without its dashes, and key in the file: 'shutdown-timeout'. */
  readonly name: string
  /** Heading in the help under which it stands; settings of a group stand together. */
  readonly group: string
  /** What it does, and when to change it. Sentences. */
  readonly help: string
  /** Environment variable; default `HOMING_` and the name in capitals. */
  readonly env?: string
  /** Other names that are accepted on the command line and in the file, without dashes. */
  readonly aliases?: readonly string[]
  readonly envAliases?: readonly EnvironmentAlias[]
}

/** Numbers within [min, max]; `default` undefined: not set unless given. */
export interface NumberSetting extends SettingNames {
  readonly kind: 'integer' | 'number'
  readonly default: number | undefined | ComputedDefault
  readonly min: number
  readonly max: number
  /** Word behind the number in the help: 'tokens'. */
  readonly unit?: string
  /** What no value or 0 means, if that needs explaining: 'no limit'. */
  readonly unsetMeans?: string
  readonly zeroMeans?: string
}

/** Milliseconds when parsed; written '500ms', '30s', '5m', '2h', or a bare number of seconds. */
export interface DurationSetting extends SettingNames {
  readonly kind: 'duration'
  /** Milliseconds, as are `min` and `max`. */
  readonly default: number
  readonly min: number
  readonly max: number
  readonly zeroMeans?: string
}

/** Bytes when parsed; written '64MiB', '1GiB', '512KiB', or a bare number of bytes. */
export interface SizeSetting extends SettingNames {
  readonly kind: 'size'
  /** Bytes, as are `min` and `max`. */
  readonly default: number
  readonly min: number
  readonly max: number
}

export interface TextSetting extends SettingNames {
  readonly kind: 'text'
  readonly default: string | undefined
  /** Stands for the value in the help: 'FILE'. */
  readonly placeholder: string
  readonly unsetMeans?: string
  /** Why a value cannot be used; undefined when it can. */
  readonly check?: (text: string) => string | undefined
  /** Normalizes the text if it can be written in several ways. */
  readonly read?: (text: string) => string
}

/** On or off: `--name`, `--no-name`, and `--name=true|false`. */
export interface FlagSetting extends SettingNames {
  readonly kind: 'flag'
  readonly default: boolean
}

export interface ChoiceSetting extends SettingNames {
  readonly kind: 'choice'
  readonly choices: readonly string[]
  readonly default: string
  /** Choices of other routers, each with ours that comes closest: taken, with a warning that says so. */
  readonly foreignChoices?: Readonly<Record<string, ForeignChoice>>
}

export interface ForeignChoice {
  /** One of the choices. */
  readonly means: string
  /** The rest of a sentence that begins with the option and its value. */
  readonly why: string
}

/** May be given many times; empty when not given. In a variable the items are separated. */
export interface ListSetting extends SettingNames {
  readonly kind: 'list'
  readonly placeholder: string
  /**
   * Between items of a variable; 'comma or space' only where no item contains a space, 'line' where items
   * contain commas.
   */
  readonly separator: 'comma' | 'comma or space' | 'line'
  readonly unsetMeans?: string
  /** If it is not given, something other than an empty list is meant; so a given list must have an item. */
  readonly mustNameOne?: boolean
  /** Why an item cannot be used; undefined when it can. */
  readonly check?: (text: string) => string | undefined
}

export type SettingDescriptor =
  | NumberSetting
  | DurationSetting
  | SizeSetting
  | TextSetting
  | FlagSetting
  | ChoiceSetting
  | ListSetting

type Unset<D> = D extends { readonly default: undefined } ? undefined : never

type ValueOf<D> = D extends { readonly kind: 'flag' }
  ? boolean
  : D extends { readonly kind: 'choice'; readonly choices: readonly (infer C)[] }
    ? C
    : D extends { readonly kind: 'list' }
      ? readonly string[]
      : D extends { readonly kind: 'text' }
        ? string | Unset<D>
        : number | Unset<D>

/**
 * The parsed settings of a table: one property per setting, under its `key`. Durations are milliseconds,
 * sizes are bytes. The table must be declared `as const satisfies readonly SettingDescriptor[]`.
 */
export type SettingsOf<T extends readonly SettingDescriptor[]> = {
  readonly [D in T[number] as D['key']]: ValueOf<D>
}

/** Where a value came from: the option, variable or file key as it was written. */
export interface SettingSource {
  readonly kind: 'command line' | 'environment' | 'file' | 'default'
  readonly name: string
}

/** What a rule over several settings can see. */
export interface RuleFacts<S> {
  readonly settings: S
  /** True when the operator gave the setting, in whatever place. */
  isGiven(key: keyof S): boolean
}

/**
 * An option of other routers that has no counterpart here. It may have a value, or begin with no-; it gives
 * one warning, and nothing else.
 */
export interface ForeignOption {
  /** Without dashes. */
  readonly name: string
  /** Its environment variable. */
  readonly env: string
  /** What there is instead: a sentence without its full stop. */
  readonly instead: string
}

/** One command: its table, and the rest of its help. */
export interface Command<T extends readonly SettingDescriptor[] = readonly SettingDescriptor[]> {
  /** As typed: 'router'. */
  readonly name: string
  /** One sentence. */
  readonly summary: string
  readonly settings: T
  /** The list that takes the words without dashes, by its option: 'worker'. Undefined: there may be none. */
  readonly operands?: string
  /** Two lines that can be pasted, each with what it does. */
  readonly examples: readonly { readonly does: string; readonly line: string }[]
  /** Values of settings that were not given, where they follow from others that were. Before the rules. */
  readonly implied?: (facts: RuleFacts<SettingsOf<T>>) => Partial<SettingsOf<T>>
  /** Faults that only several settings together can have; each answers a sentence or undefined. */
  readonly rules?: readonly ((facts: RuleFacts<SettingsOf<T>>) => string | undefined)[]
  /** What several settings together mean, where a reader might expect something else: warnings. */
  readonly remarks?: readonly ((facts: RuleFacts<SettingsOf<T>>) => string | undefined)[]
  /** Options of other routers that are told, and stop nothing. */
  readonly foreign?: readonly ForeignOption[]
}

/** The environment variable of a setting. */
export function environmentName(setting: SettingDescriptor): string {
  return setting.env ?? `HOMING_${setting.name.toUpperCase().replaceAll('-', '_')}`
}
