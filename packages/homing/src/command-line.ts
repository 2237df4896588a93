/** The command line: which command, with what exit code, and how its errors read. */

import { SettingsError } from '@homing/config'
import { RouterError } from '@homing/errors'
import type { CommandEntry } from './command-entry.ts'
import { COMMANDS } from './commands.ts'
import { errorLine } from './error-line.ts'
import { version } from './version.ts'

/** `argv`: what is typed behind `homing`. Resolves with the exit code; rejects only for a bug. */
export async function runCommandLine([name, ...argv]: readonly string[]): Promise<number> {
  if (name === 'help' || name === '--help' || name === '-h') {
    console.log(overview())
    return 0
  }
  if (name === '--version' || name === 'version') {
    console.log(version())
    return 0
  }
  const command = name !== undefined && Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (command === undefined) {
    const typed = name === undefined ? 'nothing' : JSON.stringify(name)
    const known = Object.keys(COMMANDS).join(', ')
    console.error(`homing: cannot run ${typed}: name a command, which are ${known} (homing --help)`)
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
      console.error(errorLine(thrown))
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
