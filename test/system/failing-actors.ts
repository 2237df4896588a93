/**
 * Preload of a process of `homing`: an actor on its main thread fails at its next message, as by a throw of
 * its own, once the parent process has sent its name over the channel between them. The name comes back when
 * that has happened.
 */

import { registerHooks } from 'node:module'
import process from 'node:process'
import { isMainThread } from 'node:worker_threads'

const FILE = '/packages/actor/src/cell/turn-taker.ts'
const HANDLES = 'const arm = behavior[message.type]\n      if'
const FAILS = `globalThis.homingFailure?.(this.name, message.type)
      ${HANDLES}`

/**
 * A message sent once. If an actor loses it, only --active-request-expiry frees the request; that would hide
 * other requests that are not freed.
 */
const SETTLED = 'settled'

const failures = new Set<string>()
if (isMainThread) {
  Object.assign(globalThis, {
    homingFailure(actor: string, messageType: string): void {
      if (messageType === SETTLED || !failures.delete(actor)) return
      process.send?.(actor)
      throw new Error('the test makes it fail')
    },
  })
}
process.on('message', name => failures.add(String(name)))
process.channel?.unref()

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context)
    if (!url.endsWith(FILE)) return loaded
    const source = Buffer.from(loaded.source as Uint8Array).toString()
    if (source.split(HANDLES).length !== 2) throw new Error(`cannot let actors fail: ${url} has changed`)
    return { ...loaded, source: source.replace(HANDLES, FAILS) }
  },
})
