/**
 * The libraries that HTTP is spoken with, loaded where they are needed and no further.
 *
 *   node:http   An `import` of it reads every name that it exports, and one of them loads the whole of Node's
 *               own fetch: 50 ms in every thread. Asked for by name it loads in 8.
 *   undici      Its entry loads caches, mocks, WebSockets and fetch, too: 109 modules. The client needs two,
 *               with what they need, and only in a thread that makes calls.
 */

import { createRequire } from 'node:module'
import process from 'node:process'
import type * as undici from 'undici'

export const nodeHttp = process.getBuiltinModule('node:http')

export interface Undici {
  readonly Agent: typeof undici.Agent
  readonly buildConnector: typeof undici.buildConnector
  readonly errors: typeof undici.errors
}

let loaded: Undici | undefined

/** Its version is pinned, so its folders stay where they are. */
export function loadUndici(): Undici {
  if (loaded !== undefined) return loaded
  const require = createRequire(import.meta.url)
  loaded = {
    Agent: require('undici/lib/dispatcher/agent.js'),
    buildConnector: require('undici/lib/core/connect.js'),
    errors: require('undici/lib/core/errors.js'),
  }
  return loaded
}
