/**
 * Pod notes: what the annotations of a pod say of the engine in it. Each is a parameter of a worker URL:
 *
 *   homing/role: prefill      homing/ranks: "2"       homing/events: "5557"     homing/replay: "6557"
 *   homing/block-size: "16"   homing/taints: canary   homing/topic: kv          … as in --worker
 *
 * and four say where it is:
 *
 *   homing/port: http         name or number of a port; default: --kubernetes-port
 *   homing/scheme: https      default: http
 *   homing/path: /engines/a   path under which its routes are
 *   homing/ignore: "true"     it is no worker
 *
 * Names are checked here, values where a worker URL is read. A pod may not name keys: who may write a pod
 * may not read files of the router.
 */

import { shownText } from '@homing/base'
import { type ApiMap, mapIn, textIn } from './api-answers.ts'

const PREFIX = 'homing/'
const PARAMETERS: ReadonlySet<string> = new Set([
  'events',
  'replay',
  'events-host',
  'ranks',
  'model',
  'block-size',
  'kv-blocks',
  'max-batched-tokens',
  'role',
  'handover',
  'bootstrap-host',
  'bootstrap-port',
  'taints',
  'topic',
  'nats',
  'requests',
])
/** Longer values are of no parameter. */
const NOTE_CHARACTERS_MAX = 1024

export interface WorkerNotes {
  readonly name: string
  readonly uid: string
  /** By the name of the parameter in a URL. */
  readonly parameters: ReadonlyMap<string, string>
  readonly port: string | undefined
  readonly scheme: string | undefined
  readonly path: string
  readonly isIgnored: boolean
  /** Why its annotations cannot be used. */
  readonly fault: string | undefined
}

/** Undefined: it is no pod. */
export function readWorkerNotes(object: ApiMap): WorkerNotes | undefined {
  const metadata = mapIn(object, 'metadata')
  const [name, uid] = [textIn(metadata, 'name'), textIn(metadata, 'uid')]
  if (name === undefined || uid === undefined) return undefined
  const parameters = new Map<string, string>()
  const own = new Map<string, string>()
  let fault: string | undefined
  for (const [annotation, value] of Object.entries(mapIn(metadata, 'annotations') ?? {})) {
    if (!annotation.startsWith(PREFIX) || typeof value !== 'string') continue
    const note = annotation.slice(PREFIX.length)
    if (value.length > NOTE_CHARACTERS_MAX) fault ??= `its annotation ${PREFIX}${shownText(note)} is too long`
    else if (PARAMETERS.has(note)) parameters.set(note.replaceAll('-', '_'), value)
    else if (OWN.has(note)) own.set(note, value)
    else
      fault ??= `it has the annotation ${PREFIX}${shownText(note)}; known ones are ${[...OWN, ...PARAMETERS].map(known => PREFIX + known).join(', ')}`
  }
  const scheme = own.get('scheme')
  if (scheme !== undefined && scheme !== 'http' && scheme !== 'https')
    fault ??= `its annotation ${PREFIX}scheme is ${JSON.stringify(shownText(scheme))}; use http or https`
  const path = own.get('path') ?? ''
  return {
    name,
    uid,
    parameters,
    port: own.get('port'),
    scheme,
    path: path === '' || path.startsWith('/') ? path : `/${path}`,
    isIgnored: own.get('ignore') === 'true',
    fault,
  }
}

const OWN: ReadonlySet<string> = new Set(['port', 'scheme', 'path', 'ignore'])
