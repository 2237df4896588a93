/**
 * What commands that run for long need of Node and of the C library. It cannot be set in a process that runs
 * already, so the process begins anew with it: the same pid, and 40 ms later. `#!` cannot give it (BusyBox's
 * `env` takes no arguments), and every other way to start homing would have to repeat it.
 *
 *   --max-semi-space-size=8   docs/decisions/0043-small-young-generations.md
 *   MALLOC_ARENA_MAX=2        likewise: what threads leave unused is used by others
 *   NODE_COMPILE_CACHE        the cache is there before the first module: Node need not load its compiler of
 *                             TypeScript, which takes 20 MB and 0.4 s of CPU, for main.ts alone
 */

import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'

const LONG_COMMANDS: ReadonlySet<string> = new Set(['router', 'picker', 'indexer', 'slots', 'select'])
const NAME = '--max-semi-space-size'
const OPTION = `${NAME}=8`
const ARENAS = 'MALLOC_ARENA_MAX'
const CACHE = 'NODE_COMPILE_CACHE'
/** Where `module.enableCompileCache()` has it. */
const CACHE_FOLDER = 'node-compile-cache'

/** How a process was started. */
export interface ProcessStart {
  readonly command: string | undefined
  readonly execArgv: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  /** Its parent talks with it over a channel, which would not outlive the new beginning. */
  readonly hasChannel: boolean
}

/** What a process lacks. */
export interface Lacking {
  readonly options: readonly string[]
  readonly env: Readonly<Record<string, string>>
}

const NOTHING: Lacking = { options: [], env: {} }

/** What is lacking. What an operator gives of the same name goes before. */
export function lackingOf({ command, execArgv, env, hasChannel }: ProcessStart): Lacking {
  if (command === undefined || !LONG_COMMANDS.has(command) || hasChannel) return NOTHING
  const words = [...execArgv, env['NODE_OPTIONS'] ?? '']
  const isGiven = words.some(text => text.replaceAll('_', '-').includes(NAME))
  return {
    options: isGiven ? [] : [OPTION],
    env: {
      ...(hasOwnArenas(env) ? {} : { [ARENAS]: '2' }),
      ...(env[CACHE] === undefined && env['NODE_DISABLE_COMPILE_CACHE'] === undefined
        ? { [CACHE]: join(tmpdir(), CACHE_FOLDER) }
        : {}),
    },
  }
}

function hasOwnArenas(env: ProcessStart['env']): boolean {
  return env[ARENAS] !== undefined || (env['GLIBC_TUNABLES'] ?? '').includes('arena_max')
}

/** Begins this process anew if it lacks something. Returns if not, or where the system cannot do that. */
export function beginWithNodeOptions(): void {
  const { argv, execArgv, execPath, env } = process
  const hasChannel = process.channel !== undefined && process.channel !== null
  const lacking = lackingOf({ command: argv[2], execArgv, env, hasChannel })
  if (lacking.options.length === 0 && Object.keys(lacking.env).length === 0) return
  try {
    process.execve?.(execPath, [execPath, ...execArgv, ...lacking.options, ...argv.slice(1)], {
      ...env,
      ...lacking.env,
    })
  } catch {
    // Windows cannot. Without them it needs more memory, and is otherwise the same.
  }
}
