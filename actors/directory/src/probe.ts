/**
 * Probe: asks a worker's base URL about the engine behind it.
 *
 *   GET  /v1/models                                models, reachability; without it there is no worker
 *   GET  /version, /server_info, /get_server_info, /model_info      family, version, sizes, event sources
 *   GET  /kv_event_sources                         event sources of vLLM
 *   GET  /metrics                                  block size, capacity, ranks, start of the process
 *   POST /tokenize                                 whether it tokenizes
 *
 * The requests after the first are sent at the same time, each with its own deadline. If one is not
 * answered in time, or with 429 or 5xx, its facts stay unknown and it is named in `unanswered`. 403 and 404 both mean "not here":
 * vLLM answers 403 on routes that are switched off.
 */

import { HttpCallError, type HttpReply, type HttpTransport } from '@homing/transport'
import type { EngineFamily, ProbedFact, ProbeOutcome } from './messages.ts'
import {
  familyOfOwner,
  readEventSources,
  readMetrics,
  readModels,
  readServerInfo,
  readVersion,
  withTokenizerPath,
} from './probe-answers.ts'
import { hostOf } from './worker-spec.ts'

const ANSWER_BYTES_MAX = 8 * 1024 * 1024
/** What each question tells. */
const VERSION_FACTS: readonly ProbedFact[] = ['engine', 'engineVersion']
const SOURCE_FACTS: readonly ProbedFact[] = ['eventSources', 'ranks']
const METRICS_FACTS: readonly ProbedFact[] = [
  'engine',
  'blockSizeTokens',
  'kvBlocks',
  'ranks',
  'processStartSeconds',
]
const INFO_FACTS: readonly ProbedFact[] = [
  'engine',
  'engineVersion',
  'blockSizeTokens',
  'maxBatchedTokens',
  'kvBlocks',
  'ranks',
  'eventSources',
]
const utf8 = new TextDecoder()

/** Never rejects: a worker that cannot be reached is an outcome. Takes two timeouts at most. */
export async function probeWorker(
  http: HttpTransport,
  origin: string,
  timeoutMs: number,
): Promise<ProbeOutcome> {
  const ask = (path: string, body?: object) => tryFetch(http, origin, path, timeoutMs, body)
  const host = hostOf(origin)
  const first = await ask('/v1/models')
  if (first instanceof Error) return { reached: false, reason: first.message, isLocal: isLocal(first) }
  if (first.status !== 200) return { reached: false, reason: `GET /v1/models answers ${first.status}` }
  const list = readModels(tryJson(first))
  if (list === undefined) return { reached: false, reason: 'GET /v1/models does not answer a list of models' }

  const model = list.models[0]?.name
  const [version, info, olderInfo, modelInfo, sources, metricsReply, tokenize] = await Promise.all([
    ask('/version'),
    ask('/server_info'),
    ask('/get_server_info'),
    ask('/model_info'),
    ask('/kv_event_sources'),
    ask('/metrics'),
    ask('/tokenize', { model, prompt: 'homing' }),
  ])
  const serverInfo = readServerInfo(tryJson(info), host) ?? readServerInfo(tryJson(olderInfo), host)
  const metrics = isAnswer(metricsReply) ? readMetrics(utf8.decode(metricsReply.body)) : undefined
  const versionText = readVersion(tryJson(version))
  const engine: EngineFamily =
    familyOfOwner(list.owner) ??
    serverInfo?.family ??
    (metrics?.isVllm
      ? 'vllm'
      : metrics?.isSglang || isAnswer(modelInfo)
        ? 'sglang'
        : versionText
          ? 'vllm'
          : 'unknown')
  const discovered = readEventSources(tryJson(sources), host) ?? []
  const eventSources = discovered.length > 0 ? discovered : (serverInfo?.eventSources ?? [])
  const blockSizeTokens = serverInfo?.blockSizeTokens ?? metrics?.blockSizeTokens
  const kvTokens = serverInfo?.kvTokens
  return {
    reached: true,
    engine,
    engineVersion: versionText ?? serverInfo?.version ?? '',
    models: withTokenizerPath(list.models, tryJson(modelInfo)),
    blockSizeTokens,
    maxBatchedTokens: serverInfo?.maxBatchedTokens,
    kvBlocks:
      metrics?.kvBlocks ??
      (kvTokens !== undefined && blockSizeTokens !== undefined
        ? Math.floor(kvTokens / blockSizeTokens)
        : undefined),
    ranks: metrics?.ranks ?? serverInfo?.ranks ?? (eventSources.length > 0 ? eventSources.length : undefined),
    canTokenize: hasTokens(tryJson(tokenize)),
    eventSources,
    processStartSeconds: metrics?.processStartSeconds,
    unanswered: [
      ...(isUnanswered(version) ? VERSION_FACTS : []),
      ...(isUnanswered(info) || isUnanswered(olderInfo) ? INFO_FACTS : []),
      ...(isUnanswered(sources) ? SOURCE_FACTS : []),
      ...(isUnanswered(metricsReply) ? METRICS_FACTS : []),
      ...(isUnanswered(modelInfo) ? (['engine'] as const) : []),
      ...(isUnanswered(tokenize) ? (['canTokenize'] as const) : []),
    ],
  }
}

/** What one cheap question says: whether the worker answers at all. */
export type HealthOutcome =
  | { readonly isHealthy: true }
  | { readonly isHealthy: false; readonly reason: string; readonly isLocal: boolean }

/** Never rejects. `/v1/models` is answered without touching the model on every engine. */
export async function checkHealth(
  http: HttpTransport,
  origin: string,
  timeoutMs: number,
): Promise<HealthOutcome> {
  const answer = await tryFetch(http, origin, '/v1/models', timeoutMs)
  if (answer instanceof Error) return { isHealthy: false, reason: answer.message, isLocal: isLocal(answer) }
  if (answer.status >= 500)
    return { isHealthy: false, reason: `GET /v1/models answers ${answer.status}`, isLocal: false }
  return { isHealthy: true }
}

async function tryFetch(
  http: HttpTransport,
  origin: string,
  path: string,
  timeoutMs: number,
  body?: object,
): Promise<HttpReply | Error> {
  const request =
    body === undefined
      ? { origin, method: 'GET', path }
      : {
          origin,
          method: 'POST',
          path,
          headers: { 'content-type': 'application/json' },
          body: new TextEncoder().encode(JSON.stringify(body)),
        }
  try {
    return await http.fetch(request, { timeoutMs, maxBytes: ANSWER_BYTES_MAX })
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error))
  }
}

/** The question never left this machine. */
function isLocal(error: Error): boolean {
  return error instanceof HttpCallError && error.failure === 'local'
}

function isAnswer(reply: HttpReply | Error): reply is HttpReply {
  return !(reply instanceof Error) && reply.status === 200
}

/** It may be there, but did not say. */
function isUnanswered(reply: HttpReply | Error): boolean {
  return reply instanceof Error || reply.status === 429 || reply.status >= 500
}

/** Undefined for anything but JSON with status 200. */
function tryJson(reply: HttpReply | Error): unknown {
  if (!isAnswer(reply)) return undefined
  try {
    return JSON.parse(utf8.decode(reply.body)) as unknown
  } catch {
    return undefined
  }
}

function hasTokens(body: unknown): boolean {
  return typeof body === 'object' && body !== null && Array.isArray((body as { tokens?: unknown }).tokens)
}
