/**
 * The help text of a command and its section in docs/configuration.md, both made from its table.
 */

import { type Command, environmentName, type Machine, type SettingDescriptor } from './descriptor.ts'
import { CONFIG_OPTION, CONFIG_VARIABLE } from './parse-settings.ts'
import { defaultText, placeholderOf, rangeText, thisMachine } from './setting-value.ts'

const INDENT = '      '

/** The help of `command`, wrapped at `widthColumns`; ends with a line feed. */
export function renderHelp(
  command: Command,
  options: { readonly machine?: Machine; readonly widthColumns?: number } = {},
): string {
  const machine = options.machine ?? thisMachine()
  const width = Math.max(40, options.widthColumns ?? 100)
  const usage = `Usage: homing ${command.name} [options]${operandsText(command)}`
  const lines = [`homing ${command.name}: ${command.summary}`, '', usage]

  for (const [group, settings] of groupsOf(command.settings)) {
    lines.push('', group)
    for (const setting of settings) {
      lines.push(
        `  ${signatureOf(setting)}`,
        ...wrap(setting.help, width),
        ...wrap(factsOf(setting, machine), width),
      )
    }
  }
  lines.push('', 'All commands')
  lines.push(`  --${CONFIG_OPTION} FILE`)
  lines.push(...wrap(`YAML file with the same names. ${CONFIG_ORDER}`, width))
  lines.push(...wrap(`default none · ${CONFIG_VARIABLE}`, width))
  lines.push('  --help', ...wrap('Show this text.', width))
  lines.push('', 'Examples')
  for (const { does, line } of command.examples) lines.push(`  ${does}`, `    ${line}`)
  return `${lines.join('\n')}\n`
}

/** The section of `command` in docs/configuration.md, the same on every machine. */
export function renderReference(command: Command): string {
  const lines = [`## homing ${command.name}`, '', command.summary]
  for (const [group, settings] of groupsOf(command.settings)) {
    lines.push('', `### ${group}`, '')
    lines.push('| option | default | range | environment | key | what it does |', '|---|---|---|---|---|---|')
    for (const setting of settings) {
      const columns = [
        `\`${signatureOf(setting)}\`${aliasesOf(setting)}`,
        defaultText(setting),
        rangeText(setting) ?? '',
        [environmentName(setting), ...(setting.envAliases ?? []).map(alias => alias.name)]
          .map(name => `\`${name}\``)
          .join(', '),
        `\`${setting.key}\``,
        setting.help,
      ]
      lines.push(`| ${columns.map(column => column.replaceAll('|', '\\|')).join(' | ')} |`)
    }
  }
  lines.push('', ...foreignRows(command))
  for (const { does, line } of command.examples) lines.push(`${does}`, '', '```sh', line, '```', '')
  return lines.join('\n')
}

/** Options that have the same instead of them share a row. */
function foreignRows({ foreign = [] }: Command): readonly string[] {
  if (foreign.length === 0) return []
  const named = Map.groupBy(foreign, ({ instead }) => instead)
  return [
    '### Options of other routers',
    '',
    'They stop nothing: each gives one warning at the start, and so does its variable (`DYN_` and the name in capitals).',
    '',
    '| option | instead |',
    '|---|---|',
    ...[...named].map(
      ([instead, those]) => `| ${those.map(({ name }) => `\`--${name}\``).join(', ')} | ${instead} |`,
    ),
    '',
  ]
}

/** ' URL…' for a command that takes words without dashes. */
function operandsText({ operands, settings }: Command): string {
  const setting = settings.find(({ name }) => name === operands)
  return setting === undefined ? '' : ` ${placeholderOf(setting)}…`
}

const CONFIG_ORDER = 'The environment overrides it, and the command line overrides both.'

function groupsOf(settings: readonly SettingDescriptor[]): Map<string, SettingDescriptor[]> {
  const groups = new Map<string, SettingDescriptor[]>()
  for (const setting of settings) {
    const group = groups.get(setting.group)
    if (group === undefined) groups.set(setting.group, [setting])
    else group.push(setting)
  }
  return groups
}

function signatureOf(setting: SettingDescriptor): string {
  if (setting.kind === 'flag') return `--${setting.name}, --no-${setting.name}`
  const repeated = setting.kind === 'list' ? ' (repeatable)' : ''
  return `--${setting.name} ${placeholderOf(setting)}${repeated}`
}

function factsOf(setting: SettingDescriptor, machine: Machine): string {
  const facts = [`default ${flagDefault(setting) ?? withUnit(setting, defaultText(setting, machine))}`]
  const range = rangeText(setting)
  if (range !== undefined) facts.push(setting.kind === 'choice' ? `one of ${range}` : `range ${range}`)
  if ('zeroMeans' in setting && setting.zeroMeans !== undefined && setting.default !== 0) {
    facts.push(`0: ${setting.zeroMeans}`)
  }
  facts.push(environmentName(setting))
  if (setting.aliases !== undefined) facts.push(`also --${setting.aliases.join(', --')}`)
  return facts.join(' · ')
}

function withUnit(setting: SettingDescriptor, text: string): string {
  const hasNumber = 'unit' in setting && setting.unit !== undefined && /^[\d.]+$/.test(text)
  return hasNumber ? `${text} ${setting.unit}` : text
}

function flagDefault(setting: SettingDescriptor): string | undefined {
  if (setting.kind !== 'flag') return undefined
  return setting.default ? 'on' : 'off'
}

function aliasesOf(setting: SettingDescriptor): string {
  if (setting.aliases === undefined) return ''
  return `, also ${setting.aliases.map(alias => `\`--${alias}\``).join(', ')}`
}

function wrap(text: string, width: number): readonly string[] {
  const lines: string[] = []
  let line = INDENT
  for (const word of text.split(' ')) {
    if (line.length > INDENT.length && line.length + word.length > width) {
      lines.push(line.trimEnd())
      line = INDENT
    }
    line += `${word} `
  }
  lines.push(line.trimEnd())
  return lines
}
