/**
 * Packages of another checkout: with `--import` of this file, what a bench imports from `packages/` and
 * `actors/` of this checkout comes from the one that CHECKOUT_ENVIRONMENT names, which is installed. The
 * bench itself, its workload and its checks stay ours, so that two checkouts do the same work.
 */

import { registerHooks } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

export const CHECKOUT_ENVIRONMENT = 'HOMING_BENCH_CHECKOUT'

const ours = new URL('..', import.meta.url).href
const checkout = process.env[CHECKOUT_ENVIRONMENT]
if (checkout !== undefined) {
  const theirs = `${pathToFileURL(resolve(checkout)).href}/`
  registerHooks({
    resolve(specifier, context, next) {
      const found = next(specifier, context)
      const isOurs = ['packages/', 'actors/'].some(folder => found.url.startsWith(ours + folder))
      return isOurs ? { ...found, url: theirs + found.url.slice(ours.length) } : found
    },
  })
}
