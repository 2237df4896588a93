/** Collector: asks V8 to collect garbage on this thread. */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** What is collected: everything, or young objects alone, which takes a few milliseconds. */
export type Collected = 'all' | 'young'

type Collect = (options?: { readonly type: 'minor' }) => void

const TRIES = 10
let collect: Collect | undefined

/**
 * Node lends its collector only to contexts that are made while the flag is set, which other threads set and
 * reset too. The context that is kept for it takes 0.4 MB. Where the program itself has set the flag, its
 * collector is taken, and the flag left alone.
 */
export function collectGarbage(what: Collected = 'all'): void {
  collect ??= (globalThis as { readonly gc?: Collect }).gc
  for (let tries = 0; collect === undefined && tries < TRIES; tries++) {
    setFlagsFromString('--expose-gc')
    collect = runInNewContext('globalThis.gc') as Collect | undefined
    setFlagsFromString('--no-expose-gc')
  }
  if (what === 'all') collect?.()
  else collect?.({ type: 'minor' })
}
