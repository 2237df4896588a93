/**
 * Workers at run time: `POST /workers {"url"}`, `DELETE /workers/ID`, `POST /workers/ID/drain`. The id is the
 * `id` of `GET /workers`, host and port.
 */

import type { ActorRef } from '@homing/actor'
import type { DirectoryMessage } from '@homing/actors/directory'
import { parseJson } from '@homing/base'
import {
  BadParameterError,
  type HttpAnswer,
  jsonAnswer,
  NotFoundError,
  queryOf,
  RefusedError,
} from '@homing/http'
import type { OperatorRequest } from '../messages.ts'

export interface WorkerChangeParts {
  readonly directory: ActorRef<DirectoryMessage>
  readonly askMsMax: number
}

const DRAIN = '/drain'
const ADDED_URL_CHARACTERS_MAX = 2048

/** 201 with the id; it is probed from now on, and `GET /workers` shows how far it is known. */
export async function addWorker(
  request: OperatorRequest,
  { directory, askMsMax }: WorkerChangeParts,
): Promise<HttpAnswer> {
  queryOf(request)
  const url = urlOf(request.body)
  const added = await directory.ask({ type: 'addWorker', url }, { timeout: askMsMax })
  if ('code' in added) throw new RefusedError(added, 'url')
  return jsonAnswer(201, { worker: added.id, state: 'probing' })
}

export async function removeWorker(
  request: OperatorRequest,
  workerId: string,
  { directory, askMsMax }: WorkerChangeParts,
): Promise<HttpAnswer> {
  queryOf(request)
  if (!(await directory.ask({ type: 'removeWorker', workerId }, { timeout: askMsMax })))
    throw unknown(workerId)
  return jsonAnswer(200, { worker: workerId, state: 'removed' })
}

/** 202: it leaves when its last request has ended. */
export async function drainWorker(
  request: OperatorRequest,
  parameter: string,
  { directory, askMsMax }: WorkerChangeParts,
): Promise<HttpAnswer> {
  queryOf(request)
  if (!parameter.endsWith(DRAIN)) {
    throw new BadParameterError('path', request.path, 'use POST /workers/ID/drain, or DELETE /workers/ID')
  }
  const workerId = parameter.slice(0, -DRAIN.length)
  if (!(await directory.ask({ type: 'drainWorker', workerId }, { timeout: askMsMax })))
    throw unknown(workerId)
  return jsonAnswer(202, { worker: workerId, state: 'draining' })
}

function urlOf(body: Uint8Array = new Uint8Array(0)): string {
  let given: unknown
  try {
    given = parseJson(new TextDecoder().decode(body))
  } catch {
    throw new BadParameterError('body', '', `send JSON: ${EXAMPLE}`)
  }
  const { url, ...rest } = (typeof given === 'object' && given !== null ? given : {}) as Record<
    string,
    unknown
  >
  const [stranger] = Object.keys(rest)
  if (stranger !== undefined)
    throw new BadParameterError(stranger, '', `the body takes url alone: ${EXAMPLE}`)
  if (typeof url !== 'string' || url.length > ADDED_URL_CHARACTERS_MAX)
    throw new BadParameterError('url', '', `send the URL of an engine: ${EXAMPLE}`)
  return url
}

const EXAMPLE = '{"url": "http://10.0.0.3:8001?events=5557&replay=6557"}'

function unknown(workerId: string): NotFoundError {
  return new NotFoundError('worker', workerId, 'GET /workers lists them')
}
