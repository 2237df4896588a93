/**
 * Route table: from method and path of a request to the code that serves it.
 *
 * A pattern may have one '*', which takes at least one character as the parameter: the rest of the path where
 * it ends the pattern, else one segment. HEAD is GET without the body, which the HTTP server leaves out by
 * itself. A path with a segment '..' is on no route: '/v1/../admin' is under /v1 only for programs that do
 * not resolve it.
 */

import { MethodNotAllowedError, NoSuchRouteError } from './errors.ts'

export interface Route {
  readonly method: string
  readonly path: string
}

export interface FoundRoute<R> {
  readonly route: R
  /** What the '*' stands for, decoded; '' without one. */
  readonly parameter: string
}

interface Target {
  readonly method: string
  readonly path: string
}

export class RouteTable<R extends Route> {
  readonly #routes: readonly R[]

  /** In the order in which they are tried. */
  constructor(routes: readonly R[]) {
    this.#routes = routes
  }

  /** The first route on this path, whatever its method: a label of metrics that clients cannot make up. */
  at(path: string): R | undefined {
    return this.#routes.find(route => isOnPath(route.path, path))
  }

  /** The route, or the methods that the path may be used with: none where no route has it. */
  lookUp({ method, path }: Target): FoundRoute<R> | readonly string[] {
    if (climbs(path)) return []
    const allowed: string[] = []
    for (const route of this.#routes) {
      if (!isOnPath(route.path, path)) continue
      if (takesMethod(route, method)) return { route, parameter: parameterOf(route.path, path) }
      allowed.push(route.method)
    }
    return allowed
  }

  /** Throws NoSuchRouteError, with `hint`, and MethodNotAllowedError. */
  find(target: Target, hint: string): FoundRoute<R> {
    const found = this.lookUp(target)
    return 'route' in found ? found : refuseRoute(target, found, hint)
  }
}

/** Throws what a client is told whose path can be used with these methods, or with none. */
export function refuseRoute({ method, path }: Target, allowed: readonly string[], hint: string): never {
  if (allowed.length > 0) throw new MethodNotAllowedError(method, path, allowed)
  throw new NoSuchRouteError(path, hint)
}

/** HEAD is GET without the body. */
export function takesMethod(route: { readonly method: string | undefined }, method: string): boolean {
  return route.method === method || (route.method === 'GET' && method === 'HEAD')
}

function isOnPath(pattern: string, path: string): boolean {
  return wildOf(pattern, path) !== undefined
}

function parameterOf(pattern: string, path: string): string {
  return decodePath(wildOf(pattern, path) ?? '')
}

/** What the '*' stands for, not decoded; '' without one; undefined: the path is not of this pattern. */
function wildOf(pattern: string, path: string): string | undefined {
  const at = pattern.indexOf('*')
  if (at < 0) return path === pattern ? '' : undefined
  const behind = pattern.slice(at + 1)
  if (path.length < pattern.length || !path.startsWith(pattern.slice(0, at)) || !path.endsWith(behind))
    return undefined
  const value = path.slice(at, path.length - behind.length)
  return behind === '' || !value.includes('/') ? value : undefined
}

function climbs(path: string): boolean {
  // A dot may be written with percent signs.
  if (!path.includes('..') && !path.includes('%')) return false
  return decodePath(path).split('/').includes('..')
}

function decodePath(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    // A stray '%' is part of the name as it stands; it will simply not be found.
    return text
  }
}
