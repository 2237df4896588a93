/**
 * API answers: the JSON that an API server of Kubernetes sends, as far as we need it. It is read as what a
 * stranger sent: a member of another type counts as missing.
 *
 *   a list          { metadata: { resourceVersion, continue }, items: [object, …] }
 *   a watch line    { type: ADDED | MODIFIED | DELETED | BOOKMARK | ERROR, object }
 *   a Status        { kind: 'Status', code, message, reason }, in errors and in lines of type ERROR
 */

import { parseJson, shownText } from '@homing/base'

export type ApiMap = Readonly<Record<string, unknown>>

export interface ApiList {
  readonly items: readonly ApiMap[]
  readonly resourceVersion: string
  /** Where the next page begins; undefined: there is none. */
  readonly next: string | undefined
}

export type ApiWatchEvent =
  | {
      readonly type: 'changed' | 'gone'
      readonly object: ApiMap
      readonly resourceVersion: string | undefined
    }
  /** Nothing has changed up to this version. */
  | { readonly type: 'bookmark'; readonly resourceVersion: string | undefined }
  /** `code`: of its Status. */
  | { readonly type: 'error'; readonly code: number; readonly message: string }
  /** A type that this version does not know, or no JSON of this form. */
  | { readonly type: 'unknown' }

/** Undefined: it is no list. */
export function readApiList(text: string): ApiList | undefined {
  const root = tryMap(text)
  const metadata = mapIn(root, 'metadata')
  const resourceVersion = textIn(metadata, 'resourceVersion')
  const items = root?.['items']
  if (resourceVersion === undefined || !(Array.isArray(items) || items === null)) return undefined
  return {
    items: (items ?? []).filter(isApiMap),
    resourceVersion,
    next: textIn(metadata, 'continue'),
  }
}

export function readApiWatchLine(line: string): ApiWatchEvent {
  const root = tryMap(line)
  const object = mapIn(root, 'object')
  if (object === undefined) return { type: 'unknown' }
  const resourceVersion = textIn(mapIn(object, 'metadata'), 'resourceVersion')
  switch (root!['type']) {
    case 'ADDED':
    case 'MODIFIED':
      return { type: 'changed', object, resourceVersion }
    case 'DELETED':
      return { type: 'gone', object, resourceVersion }
    case 'BOOKMARK':
      return { type: 'bookmark', resourceVersion }
    case 'ERROR':
      return { type: 'error', ...readApiStatus(object) }
    default:
      return { type: 'unknown' }
  }
}

/** What an error says; `code` 0: it does not say. */
export function readApiStatus(status: unknown): { readonly code: number; readonly message: string } {
  const map = typeof status === 'string' ? tryMap(status) : isApiMap(status) ? status : undefined
  const code = map?.['code']
  return {
    code: typeof code === 'number' ? code : 0,
    message: shownText(textIn(map, 'message') ?? 'no reason', 300),
  }
}

export function isApiMap(value: unknown): value is ApiMap {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function mapIn(map: ApiMap | undefined, name: string): ApiMap | undefined {
  const value = map?.[name]
  return isApiMap(value) ? value : undefined
}

/** Undefined: there is none, or it is empty. */
export function textIn(map: ApiMap | undefined, name: string): string | undefined {
  const value = map?.[name]
  return typeof value === 'string' && value !== '' ? value : undefined
}

export function mapsIn(map: ApiMap | undefined, name: string): readonly ApiMap[] {
  const value = map?.[name]
  return Array.isArray(value) ? value.filter(isApiMap) : []
}

function tryMap(text: string): ApiMap | undefined {
  try {
    const value = parseJson(text)
    return isApiMap(value) ? value : undefined
  } catch {
    return undefined
  }
}
