/**
 * Node's own options for commands that run for long. They cannot be set in a process that runs already, so
 * the process begins anew with them: the same pid, and 40 ms later. `#!` cannot give them (BusyBox's `env`
 * takes no arguments), and every other way to start homing would have to repeat them.
 *
 *   --max-semi-space-size=8   docs/decisions/0043-small-young-generations.md
 */

import process from 'node:process'

const LONG_COMMANDS: ReadonlySet<string> = new Set(['router', 'indexer'])
const NAME = '--max-semi-space-size'
const OPTION = `${NAME}=8`

/** How a process was started. */
export interface ProcessStart {
  readonly command: string | undefined
  readonly execArgv: readonly string[]
  /** `NODE_OPTIONS`. */
  readonly nodeOptions: string | undefined
  /** Its parent talks with it over a channel, which would not outlive the new beginning. */
  readonly hasChannel: boolean
}

/** The options that are lacking. An operator who gives one of the same name goes before. */
export function lackingNodeOptions({
  command,
  execArgv,
  nodeOptions = '',
  hasChannel,
}: ProcessStart): string[] {
  if (command === undefined || !LONG_COMMANDS.has(command) || hasChannel) return []
  const isGiven = [...execArgv, nodeOptions].some(words => words.replaceAll('_', '-').includes(NAME))
  return isGiven ? [] : [OPTION]
}

/** Begins this process anew if it lacks options. Returns if not, or where the system cannot do that. */
export function beginWithNodeOptions(): void {
  const { argv, execArgv, execPath, env } = process
  const lacking = lackingNodeOptions({
    command: argv[2],
    execArgv,
    nodeOptions: env['NODE_OPTIONS'],
    hasChannel: process.channel !== undefined && process.channel !== null,
  })
  if (lacking.length === 0) return
  try {
    process.execve?.(execPath, [execPath, ...execArgv, ...lacking, ...argv.slice(1)], env)
  } catch {
    // Windows cannot. Without the options it needs more memory, and is otherwise the same.
  }
}
