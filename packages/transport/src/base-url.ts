/**
 * Base URL of a server: its origin, and the path under which its routes are, if it has one. Callers know a
 * server by its base URL alone; only the connection needs the two apart.
 */

import type { HttpRequest } from './http-types.ts'

/** The same request, with the whole path and an origin of scheme, host and port. */
export function atOrigin<R extends Pick<HttpRequest, 'origin' | 'path'>>(request: R): R {
  const { origin: base, path } = request
  const pathAt = base.indexOf('/', base.indexOf('://') + 3)
  if (pathAt < 0) return request
  return { ...request, origin: base.slice(0, pathAt), path: base.slice(pathAt) + path }
}
