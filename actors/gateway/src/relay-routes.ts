/**
 * Relay routes: the engine routes that clients may use besides completions.
 *
 * Engines serve much more on the same port, and some of it is open to anyone who can reach it: loading
 * adapters, changing weights, putting the engine to sleep. So only the routes listed here pass, and those
 * that the operator adds (`--relay-route`). A path is relayed unchanged, so it must be spelled as in the
 * list: no percent signs, no empty segments, no `.` or `..`. Two programs may read those as two different
 * paths.
 *
 * Source: the routes of vLLM 0.32 and SGLang 0.5 that compute something for a request and change nothing
 * else.
 */

import type { RelayRoute } from '@homing/config'
import { takesMethod } from '@homing/http'

const post = (path: string): RelayRoute => ({ method: 'POST', path })

/** Routes that are relayed with any settings; docs/requests.md has the same list. */
export const ENGINE_ROUTES: readonly RelayRoute[] = [
  { method: 'GET', path: '/v1/responses/*' },
  { method: 'DELETE', path: '/v1/responses/*' },
  post('/v1/responses/*/cancel'),
  post('/v1/messages/count_tokens'),
  post('/v1/chat/completions/batch'),
  post('/v1/embeddings'),
  post('/v2/embed'),
  ...['/v1/rerank', '/v2/rerank', '/rerank', '/v1/score', '/score'].map(post),
  ...['/v1/classify', '/classify', '/pooling'].map(post),
  ...['/v1/tokenize', '/tokenize', '/v1/detokenize', '/detokenize'].map(post),
  ...['/v1/audio/transcriptions', '/v1/audio/translations', '/v1/audio/speech'].map(post),
  ...['/v1/images/generations', '/v1/images/edits'].map(post),
]

const SEGMENT = /^(?!\.{1,2}$)[A-Za-z0-9._~-]+$/

export class RelayRoutes {
  readonly #routes: readonly { readonly method: string | undefined; readonly segments: readonly string[] }[]
  constructor(added: readonly RelayRoute[]) {
    const routes = [...ENGINE_ROUTES, ...added]
    this.#routes = routes.map(({ method, path }) => ({ method, segments: path.split('/') }))
  }

  /** Whether a request passes; if not, the methods with which its path would pass (none if not listed). */
  find(method: string, path: string): true | readonly string[] {
    const segments = path.split('/')
    const allowed: string[] = []
    for (const route of this.#routes) {
      if (!isOnSegments(route.segments, segments)) continue
      if (route.method === undefined || takesMethod(route, method)) return true
      allowed.push(route.method)
    }
    return allowed
  }
}

/** Whether engines answer requests of this path without a model's step. */
export function computesNothing(path: string): boolean {
  return /\/(?:de)?tokenize$|\/count_tokens$|\/cancel$/.test(path)
}

/** All relayed routes, for people to read: 'POST /v1/embeddings'. */
export function relayedNames(added: readonly RelayRoute[]): readonly string[] {
  const routes = [...ENGINE_ROUTES, ...added]
  return routes.map(({ method, path }) => (method === undefined ? path : `${method} ${path}`))
}

function isOnSegments(pattern: readonly string[], segments: readonly string[]): boolean {
  if (pattern.length !== segments.length) return false
  for (const [at, segment] of segments.entries()) {
    const wanted = pattern[at]!
    if (wanted === '*' ? !SEGMENT.test(segment) : wanted !== segment) return false
  }
  return true
}
