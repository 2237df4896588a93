/** The command line: picks the command, prints its errors, returns the exit code. */

import { CodedError } from '@homing/base'
import { SettingsError } from '@homing/config'
import type { CommandEntry } from './command-entry.ts'
import { COMMANDS } from './commands.ts'
import { errorLine } from './error-line.ts'
import { version } from './version.ts'

/** `argv`: the words after `homing`. Resolves with the exit code; rejects only for a bug. */
export async function runCommandLine([name, ...argv]: readonly string[]): Promise<number> {
  const asked = name === 'help' && argv.length === 1 ? commandOf(argv[0]) : undefined
  if (asked !== undefined) return run(await asked(), ['--help'])
  if (name !== undefined && Object.hasOwn(TOLD, name)) {
    if (argv[0] === undefined) {
      console.log(await TOLD[name]!())
      return 0
    }
    console.error(
      `homing: cannot run ${name}: unexpected argument ${JSON.stringify(argv[0])} (homing --help)`,
    )
    return 2
  }
  const command = commandOf(name)
  if (command === undefined) {
    const typed = name === undefined ? 'nothing' : JSON.stringify(name)
    const known = Object.keys(COMMANDS).join(', ')
    console.error(`homing: cannot run ${typed}: name one of the commands ${known} (homing --help)`)
    return 2
  }
  return run(await command(), argv)
}

/** Words that print a text instead of running a command. */
const TOLD: Readonly<Record<string, () => string | Promise<string>>> = {
  help: overview,
  '--help': overview,
  '-h': overview,
  version,
  '--version': version,
}

function commandOf(name: string | undefined): (() => Promise<CommandEntry>) | undefined {
  return name !== undefined && Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
}

async function run(command: CommandEntry, argv: readonly string[]): Promise<number> {
  try {
    return await command.run(argv)
  } catch (thrown) {
    if (thrown instanceof SettingsError) {
      console.error(thrown.message)
      return 2
    }
    if (thrown instanceof CodedError) {
      console.error(errorLine(thrown))
      return 1
    }
    throw thrown
  }
}

async function overview(): Promise<string> {
  const rows = await Promise.all(
    Object.entries(COMMANDS).map(async ([name, load]) => `  ${name.padEnd(10)} ${(await load()).summary}`),
  )
  return [
    'homing: sends each LLM request to the engine that already holds the KV cache of its prompt.',
    '',
    ...rows,
    '',
    'homing <command> --help shows every option with its default, unit, range and environment variable.',
  ].join('\n')
}
