/**
 * Probe: asks a worker's base URL about the engine behind it.
 *
 *   GET  /v1/models                                models, reachability; without it there is no worker
 *   GET  /health                                   whether it can serve: 5xx says no, all else says nothing
 *   GET  /version, /server_info, /get_server_info, /model_info      family, version, sizes, event sources
 *   GET  /kv_event_sources                         event sources of vLLM
 *   GET  /metrics                                  block size, capacity, ranks, start of the process
 *   POST /tokenize                                 whether it tokenizes
 *   GET  /is_sleeping                              whether vLLM sleeps
 *
 * The requests after the first are sent at the same time, each with its own deadline. If one is not answered
 * in time, or with 429 or 5xx, its facts stay unknown and it is named in `unanswered`. 403 and 404 both mean
 * "not here": vLLM answers 403 on routes that are switched off.
 */

import { parseJson } from '@homing/base'
import { HttpCallError, type HttpReply, type HttpTransport } from '@homing/transport'
import { readEngineSleep } from './engine-sleep.ts'
import type { EngineFamily } from './fleet.ts'
import {
  familyOfOwner,
  readEventSources,
  readMetrics,
  readModels,
  readServerInfo,
  readVersion,
  withTokenizerPath,
} from './probe-answers.ts'
import type { ProbedFact, ProbeOutcome } from './probe-outcome.ts'
import { hostOf } from './worker-spec.ts'

const PROBE_ANSWER_BYTES_MAX = 8 * 1024 * 1024
/** The facts that each question gives. */
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
  'legs',
]
const utf8 = new TextDecoder()

/** Never rejects: a worker that cannot be reached is an outcome. Takes two timeouts at most. */
export async function probeWorker(
  http: HttpTransport,
  origin: string,
  timeoutMs: number,
  hasKey = false,
): Promise<ProbeOutcome> {
  const ask = (path: string, body?: object) => tryFetch(http, origin, path, timeoutMs, body)
  const host = hostOf(origin)
  const first = await ask('/v1/models')
  if (first instanceof Error)
    return { reached: false, reason: withAdvice(first), isLocal: isLocal(first), isSlow: isSlow(first) }
  if (first.status !== 200) return { reached: false, reason: statusReason(first, hasKey), isAnswered: true }
  const list = readModels(tryJson(first))
  if (list === undefined)
    return { reached: false, reason: 'GET /v1/models does not answer a list of models', isAnswered: true }

  const model = list.models[0]?.name
  const [health, version, info, olderInfo, modelInfo, sources, metricsReply, tokenize, sleeping] =
    await Promise.all([
      ask('/health'),
      ask('/version'),
      ask('/server_info'),
      ask('/get_server_info'),
      ask('/model_info'),
      ask('/kv_event_sources'),
      ask('/metrics'),
      ask('/tokenize', { model, prompt: 'homing' }),
      ask('/is_sleeping'),
    ])
  const sickness = sicknessOf(health)
  if (sickness !== undefined) return { reached: false, reason: sickness, isAnswered: true }
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
    legs: serverInfo?.legs,
    sleep: readEngineSleep(tryJson(sleeping), metrics?.sleepState),
    eventSources,
    processStartSeconds: metrics?.processStartSeconds,
    unanswered: [
      ...(isUnanswered(version) ? VERSION_FACTS : []),
      ...(isUnanswered(info) || isUnanswered(olderInfo) ? INFO_FACTS : []),
      ...(isUnanswered(sources) ? SOURCE_FACTS : []),
      ...(isUnanswered(metricsReply) ? METRICS_FACTS : []),
      ...(isUnanswered(modelInfo) ? (['engine'] as const) : []),
      ...(isUnanswered(tokenize) ? (['canTokenize'] as const) : []),
      ...(isUnanswered(sleeping) ? (['sleep'] as const) : []),
    ],
  }
}

/** Result of one cheap question: whether the worker answers at all. */
export type HealthOutcome =
  /** `models`: names of those that it lists; undefined: its answer has no list. */
  | {
      readonly isHealthy: true
      readonly models: readonly string[] | undefined
      /** Undefined: it was not asked, or does not say. */
      readonly isAsleep: boolean | undefined
    }
  | {
      readonly isHealthy: false
      readonly reason: string
      readonly isLocal: boolean
      readonly isSlow: boolean
      /** It answers, though not as one that takes requests. */
      readonly isAnswered?: boolean
    }

/**
 * Never rejects. `tellsSleep`: the worker says whether it sleeps. `/v1/models` is answered without touching
 * the model on every engine; `/health` answers 5xx where the engine behind the server is dead, and may be
 * slow where it is busy.
 */
export async function checkHealth(
  http: HttpTransport,
  origin: string,
  timeoutMs: number,
  hasKey = false,
  tellsSleep = false,
): Promise<HealthOutcome> {
  const [answer, health, sleeping] = await Promise.all([
    tryFetch(http, origin, '/v1/models', timeoutMs),
    tryFetch(http, origin, '/health', timeoutMs),
    tellsSleep ? tryFetch(http, origin, '/is_sleeping', timeoutMs) : undefined,
  ])
  if (answer instanceof Error)
    return { isHealthy: false, reason: withAdvice(answer), isLocal: isLocal(answer), isSlow: isSlow(answer) }
  if (answer.status >= 500 || answer.status === 401 || answer.status === 403)
    return { ...ANSWERED, reason: statusReason(answer, hasKey) }
  const sickness = sicknessOf(health)
  if (sickness !== undefined) return { ...ANSWERED, reason: sickness }
  return {
    isHealthy: true,
    models: readModels(tryJson(answer))?.models.map(({ name }) => name),
    isAsleep: sleeping && readEngineSleep(tryJson(sleeping), undefined)?.isAsleep,
  }
}

const ANSWERED = { isHealthy: false, isLocal: false, isSlow: false, isAnswered: true } as const

/** Why a worker cannot serve, by its own word; undefined: it does not say so. */
function sicknessOf(health: HttpReply | Error): string | undefined {
  return health instanceof Error || health.status < 500 ? undefined : `GET /health answers ${health.status}`
}

/** Explains an answer other than 200 to the first question, with a remedy. */
function statusReason({ status, headers }: HttpReply, hasKey: boolean): string {
  const said = `GET /v1/models answers ${status}`
  if (status === 401 || status === 403) {
    return hasKey
      ? `${said}: the engine does not accept the key that the router has for it`
      : `${said}: the engine wants an API key; give --engine-api-key-file, or ?key_file=PATH in the URL of this worker`
  }
  const { location } = headers
  if (status >= 300 && status < 400 && typeof location === 'string') {
    return `${said}, a redirect to ${URL.parse(location)?.origin ?? 'elsewhere'}: give the URL of the engine itself; redirects are not followed`
  }
  return said
}

/** By the codes of Node's TLS. */
const TLS_ADVICE: ReadonlyMap<string, string> = new Map([
  ['CERT_HAS_EXPIRED', 'its certificate has expired: renew it'],
  ['CERT_NOT_YET_VALID', 'its certificate is not valid yet: check the clocks of both machines'],
  ['ERR_TLS_CERT_ALTNAME_INVALID', 'its certificate is for another host name: use the name that it is for'],
  [
    'DEPTH_ZERO_SELF_SIGNED_CERT',
    'nobody known has signed its certificate: give it, or that of who did, with --engine-ca-file',
  ],
  [
    'SELF_SIGNED_CERT_IN_CHAIN',
    'nobody known has signed its certificate: give the root of its chain with --engine-ca-file',
  ],
  [
    'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    'nobody known has signed its certificate: give that of who did with --engine-ca-file',
  ],
  [
    'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
    'nobody known has signed its certificate: give that of who did with --engine-ca-file',
  ],
  ['ERR_SSL_WRONG_VERSION_NUMBER', 'it does not speak TLS: write http:// in its URL'],
  ['EPROTO', 'it does not speak TLS that we know: is it http:// ?'],
  ['ERR_SSL_PACKET_LENGTH_TOO_LONG', 'it does not speak TLS: write http:// in its URL'],
])

function withAdvice(error: HttpCallError | Error): string {
  const code = String((error.cause as { readonly code?: unknown } | undefined)?.code)
  const advice = TLS_ADVICE.get(code)
  return advice === undefined ? error.message : `${error.message}: ${advice}`
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
    return await http.fetch(request, { timeoutMs, maxBytes: PROBE_ANSWER_BYTES_MAX })
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error))
  }
}

function isSlow(error: Error): boolean {
  return error instanceof HttpCallError && error.failure === 'timeout'
}

/** The question never left this machine: it lacks something, or the worker's connection is full of calls. */
function isLocal(error: Error): boolean {
  return error instanceof HttpCallError && (error.failure === 'local' || error.failure === 'full')
}

function isAnswer(reply: HttpReply | Error): reply is HttpReply {
  return !(reply instanceof Error) && reply.status === 200
}

/** The fact may exist, but this reply does not tell. */
function isUnanswered(reply: HttpReply | Error): boolean {
  return reply instanceof Error || reply.status === 429 || reply.status >= 500
}

/** Undefined for anything but JSON with status 200. */
function tryJson(reply: HttpReply | Error): unknown {
  if (!isAnswer(reply)) return undefined
  try {
    return parseJson(utf8.decode(reply.body)) as unknown
  } catch {
    return undefined
  }
}

/** An engine that reads another field than `prompt` (llama.cpp: `content`) answers an empty list. */
function hasTokens(body: unknown): boolean {
  if (typeof body !== 'object' || body === null) return false
  const { tokens } = body as { readonly tokens?: unknown }
  return Array.isArray(tokens) && tokens.length > 0
}
