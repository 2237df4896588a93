/**
 * Until stopped: resolves when the process should end: on SIGTERM, SIGINT or SIGHUP, or when one of those
 * that started it (npx, pnpm, their shells) has gone, unless it runs detached. A second signal ends it at once.
 */

import type { Clock } from '@homing/clock'
import { isChainWhole, launcherPids } from './launchers.ts'

const LAUNCHERS_POLL_MS = 500

/** Why the process should end, for the log. */
export async function untilStopped(clock: Clock, options: { readonly detach: boolean }): Promise<string> {
  const launchers = launcherPids()
  return new Promise(resolve => {
    for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
      process.on(name, () => {
        if (hasBegun) process.exit(128 + (name === 'SIGINT' ? 2 : 15))
        stop(`signal ${name}`)
      })
    }
    let hasBegun = false
    const stop = (reason: string): void => {
      hasBegun = true
      resolve(reason)
    }
    // A launcher that is killed cannot pass a signal on; its children get another parent.
    const watchLaunchers = (): void => {
      if (hasBegun) return
      if (!isChainWhole(launchers)) stop('the process that started it has gone')
      else clock.after(LAUNCHERS_POLL_MS, watchLaunchers, { unref: true })
    }
    if (!options.detach) watchLaunchers()
  })
}
