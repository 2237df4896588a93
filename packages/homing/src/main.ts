#!/usr/bin/env node
/**
 * homing: the command line. `homing <command> [options]`, the same as `pnpm start <command> [options]`.
 *
 * Exit codes: 0 done, 1 the command failed, 2 it was not understood.
 */

import { SettingsError } from '@homing/config'
import { RouterError } from '@homing/errors'
import { COMMANDS, type CommandEntry } from './commands.ts'
import { version } from './version.ts'

const [name, ...argv] = process.argv.slice(2)
process.exitCode = await main(name, argv)

async function main(name: string | undefined, argv: readonly string[]): Promise<number> {
  if (name === undefined || name === 'help' || name === '--help' || name === '-h') {
    console.log(overview())
    return name === undefined ? 2 : 0
  }
  if (name === '--version' || name === 'version') {
    console.log(version())
    return 0
  }
  const command = COMMANDS[name]
  if (command === undefined) {
    console.error(
      `homing: cannot run ${JSON.stringify(name)}: the commands are ${Object.keys(COMMANDS).join(', ')} (homing --help)`,
    )
    return 2
  }
  return run(command, argv)
}

async function run(command: CommandEntry, argv: readonly string[]): Promise<number> {
  try {
    return await command.run(argv)
  } catch (thrown) {
    if (thrown instanceof SettingsError) {
      console.error(thrown.message)
      return 2
    }
    if (thrown instanceof RouterError) {
      console.error(`homing: ${thrown.message} [${thrown.code}]`)
      return 1
    }
    throw thrown
  }
}

function overview(): string {
  const rows = Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(10)} ${summary}`)
  return [
    'homing: sends each LLM request to the engine that already holds the KV cache of its prompt.',
    '',
    ...rows,
    '',
    'homing <command> --help shows every option with its default, unit, range and environment variable.',
  ].join('\n')
}
