#!/usr/bin/env node
/**
 * homing: the command line. `homing <command> [options]`, the same as `pnpm start <command> [options]`.
 *
 * Exit codes: 0 done, 1 the command failed, 2 it was not understood.
 */

import * as nodeModule from 'node:module'
import { beginWithNodeOptions } from './node-options.ts'
import { faultOfNodeVersion } from './node-version.ts'

// `homing router | head -1` wants the ready line and no more: the router goes on when its reader has gone.
process.stdout.on('error', error => {
  if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error
})

const fault = faultOfNodeVersion(process.versions.node)
if (fault === undefined) {
  beginWithNodeOptions()
  // Halves the time to start from TypeScript; threads of actors do the same. Node 20 has none.
  nodeModule.enableCompileCache?.()
  // Only now: an old Node may fail to load the rest, with a stack trace instead of a reason.
  const { runCommandLine } = await import('./command-line.ts')
  // At once: while an idle process winds down, its signal handlers are gone already, and the copy of a signal
  // that its launcher passes on late would kill it. What was written to a file or a pipe has left it.
  process.exit(await runCommandLine(process.argv.slice(2)))
} else {
  console.error(`homing: ${fault}`)
  process.exitCode = 1
}
