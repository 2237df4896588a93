/**
 * Until stopped: resolves when the process should end: on SIGTERM, SIGINT or SIGHUP, or when one of its
 * launchers (npx, pnpm, their shells) has gone, unless it runs detached. A second signal ends it at once.
 *
 * A terminal sends Ctrl-C to this process and to its launchers, and launchers pass signals on. So a second
 * signal within ECHO_MS is the same request, delivered twice; no person sends two that fast.
 */

import { constants } from 'node:os'
import type { Clock } from '@homing/base'
import { isChainWhole, launcherPids } from './launchers.ts'

const LAUNCHERS_POLL_MS = 500
const ECHO_MS = 200

/** Why the process should end, for the log. */
export async function untilStopped(clock: Clock, options: { readonly detach: boolean }): Promise<string> {
  const launchers = launcherPids()
  return new Promise(resolve => {
    for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
      process.on(name, () => {
        if (!hasBegun) stop(`signal ${name}`)
        else if (clock.nowMs() - begunMs > ECHO_MS) process.exit(128 + constants.signals[name])
      })
    }
    let hasBegun = false
    let begunMs = 0
    const stop = (reason: string): void => {
      hasBegun = true
      begunMs = clock.nowMs()
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
