/**
 * One worker as the operator writes it: `http://host:8001?events=5557&replay=6557&ranks=2`.
 *
 *   path                  under which all routes of the engine are: `http://host:8000/engines/a`
 *   events, replay        ports of rank 0; rank r is at port + r
 *   events_host           host of those sockets, if the URL is that of a proxy; default: the host of the URL
 *   ranks                 data-parallel ranks behind this URL
 *   model, block_size, kv_blocks, max_batched_tokens      facts that a probe would find out
 *   role=prefill|decode|both                              part of a request that it takes; default: both
 *   handover=kv_transfer|bootstrap                        how its engine hands a computed prompt over
 *   bootstrap_host, bootstrap_port                        where the decode leg meets it, of SGLang
 *   taints=a,b            words that a request may require, prefer or avoid
 *   topic                 topic of the KV events
 *   nats                  subject of the KV events at the NATS broker; rank r publishes under SUBJECT.r
 *   requests              subject at the NATS broker under which the worker takes requests, if it does; or
 *                         tcp://HOST:PORT, where it takes the connection of a router for all its requests
 *   key_env, key_file     environment variable or file with the API key of the engine; the key itself is
 *                         never in a URL
 *   id                    number for `nvext.backend_instance_id`; default: the position among the workers of
 *                         the start, also when one of these comes back; else a number that follows from host,
 *                         port and path
 *
 * Given values win over probed ones.
 */

import { looksLikeKey, NOT_SHOWN, openName, openUrl } from '@homing/base'
import { faultOfEndpoint, isEndpointHost } from '@homing/transport'
import { InvalidWorkerError } from './errors.ts'
import { faultOfSubject } from './event-broker.ts'
import { HANDOVERS, WORKER_ROLES } from './leg-names.ts'
import { RANKS_MAX } from './probe-answers.ts'
import { placeOf, workerNumberAt } from './worker-place.ts'
import type { WorkerSpec } from './worker-spec.ts'

const PARAMETERS = [
  'events',
  'replay',
  'events_host',
  'ranks',
  'model',
  'block_size',
  'kv_blocks',
  'max_batched_tokens',
  'role',
  'handover',
  'bootstrap_host',
  'bootstrap_port',
  'taints',
  'topic',
  'nats',
  'requests',
  'id',
  'key_env',
  'key_file',
] as const
/** Parameters whose values are shown as they are; a model may be called as a key is. */
const SHOWN_VALUES: ReadonlySet<string> = new Set([
  'taints',
  'topic',
  'nats',
  'requests',
  'events_host',
  'bootstrap_host',
])
/** Parameters that people put a key into. */
const SECRET = /^(?:api[_-]?key|key|token|access[_-]?token|auth(?:orization)?|password|secret)$/i

const HOST_AND_PORT = /^(?:\[[^\]]+\]|[^\s/?#:@]+):\d+(?:[/?#]|$)/
/** Percent signs would make two texts of one path, and of one id. */
const PREFIX = /^(?:\/[A-Za-z0-9._~-]+)*$/

const COUNT_MAX = 2 ** 31 - 1

/**
 * `instanceId`: if the URL names none. Of workers that the start names it is their position among them,
 * from 0; undefined: the number of its place. Throws InvalidWorkerError.
 */
export function parseWorkerSpec(text: string, instanceId: number | undefined): WorkerSpec {
  const fail = (reason: string): never => {
    throw new InvalidWorkerError(openWorker(text), reason)
  }
  const trimmed = text.trim()
  if (trimmed === '') fail('it is empty; write http://HOST:PORT')
  const hasScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(trimmed)
  // Without a scheme, only a port tells a host from any other word.
  const isHost = hasScheme || HOST_AND_PORT.test(trimmed)
  const url =
    (isHost ? tryUrl(hasScheme ? trimmed : `http://${trimmed}`) : undefined) ??
    fail('it is not a URL; write http://HOST:PORT?events=PORT&replay=PORT')
  const isSecure = url.protocol === 'https:'
  if (!isSecure && url.protocol !== 'http:') {
    fail(`workers are reached over http or https, not ${openName(url.protocol.slice(0, -1))}`)
  }
  if (url.hostname === '') fail('it has no host')
  if (url.username !== '' || url.password !== '') {
    fail(`it must not have a user name or password: ${KEY_ADVICE}`)
  }
  const prefix = url.pathname.replace(/\/$/, '')
  if (!PREFIX.test(prefix)) {
    fail("its path cannot be used; use segments of letters, digits, '-', '_', '.' and '~'")
  }
  if (prefix.endsWith('/v1')) fail('leave /v1 out of its path: it belongs to the routes themselves')
  if (url.hash !== '') fail('leave out # and what follows it')
  // Hosts and paths are in views, logs and metrics: they are the name of the worker.
  if (looksLikeKey(url.hostname) || looksLikeKey(prefix))
    fail(`its host or path looks like an API key, which would be shown: ${KEY_ADVICE}`)

  const values = new Map<string, string>()
  for (const [name, value] of url.searchParams) {
    if (SECRET.test(name)) fail(`a key does not belong into a URL: ${KEY_ADVICE}`)
    if (!(PARAMETERS as readonly string[]).includes(name)) {
      fail(`unknown parameter ${openName(name)}; known parameters: ${PARAMETERS.join(', ')}`)
    }
    if (values.has(name)) fail(`${name} is given twice`)
    if (value === '') fail(`${name} has no value`)
    if (SHOWN_VALUES.has(name) && looksLikeKey(value))
      fail(`the value of ${name} looks like an API key, which would be shown: ${KEY_ADVICE}`)
    values.set(name, value)
  }
  const integer = (name: string, min: number, max: number): number | undefined => {
    const value = values.get(name)
    if (value === undefined) return undefined
    const number = /^\d{1,16}$/.test(value) ? Number(value) : Number.NaN
    if (number >= min && number <= max) return number
    const shown = /^-?[\d.]{1,10}$/.test(value) ? `${name}=${value}` : name
    return fail(`${shown} is not a whole number from ${min} to ${max}`)
  }

  const oneOf = <T extends string>(name: string, choices: readonly T[]): T | undefined => {
    const value = values.get(name)
    if (value === undefined) return undefined
    const found = choices.find(choice => choice === value)
    return found ?? fail(`${name} is none of ${choices.join(', ')}`)
  }
  const host = (name: string): string | undefined => {
    const value = values.get(name)
    if (value === undefined) return undefined
    return tryHost(value) ?? fail(`${name} is no host; give a name or an address, without a port`)
  }

  const eventsHost = host('events_host')
  const ranks = integer('ranks', 1, RANKS_MAX)
  const eventsPort = integer('events', 1, 65_535)
  const replayPort = integer('replay', 1, 65_535)
  if ((eventsPort ?? replayPort) !== undefined && eventsHost === undefined && !isEndpointHost(url.hostname))
    fail(`its host ${url.hostname} cannot be the host of an event socket: name that with events_host=`)
  const lastRank = (ranks ?? 1) - 1
  for (const [name, port] of [
    ['events', eventsPort],
    ['replay', replayPort],
  ] as const) {
    if (port !== undefined && port + lastRank > 65_535)
      fail(`${name}=${port} leaves no ports for ${ranks} ranks`)
  }
  if (eventsPort !== undefined && replayPort !== undefined && Math.abs(eventsPort - replayPort) <= lastRank) {
    const ranksText = lastRank === 0 ? '' : `, which publish on ${eventsPort} to ${eventsPort + lastRank}`
    fail(
      `the ports of events=${eventsPort} and replay=${replayPort} overlap with ${ranks ?? 1} ranks${ranksText}: use another replay port, such as ${freeReplayPort(eventsPort, lastRank)}`,
    )
  }
  const keyEnv = values.get('key_env')
  const keyFile = values.get('key_file')
  if (keyEnv !== undefined && keyFile !== undefined) fail('give key_env or key_file, not both')
  if (keyEnv !== undefined && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(keyEnv)) {
    fail('key_env is no name of an environment variable; give the name, not the key')
  }
  const natsSubject = values.get('nats')
  if (natsSubject !== undefined && (eventsPort !== undefined || replayPort !== undefined))
    fail('give nats, or events and replay, not both')
  const subjectFault = natsSubject === undefined ? undefined : faultOfSubject(natsSubject)
  if (subjectFault !== undefined) fail(`nats ${subjectFault}`)
  const requests = values.get('requests')
  const isDoor = requests?.startsWith('tcp:') === true
  const requestFault = requests === undefined || isDoor ? undefined : faultOfSubject(requests)
  if (requestFault !== undefined) fail(`requests ${requestFault}; or tcp://HOST:PORT`)
  const doorFault = isDoor ? faultOfEndpoint(requests) : undefined
  if (doorFault !== undefined) fail(`requests names no tcp://HOST:PORT: ${doorFault}`)
  if (isDoor && isSecure)
    fail('requests=tcp:// is not encrypted, and its URL is https: leave requests out, or use http')
  const port = url.port === '' ? (isSecure ? '443' : '80') : url.port
  const name = {
    id: `${url.hostname}:${port}${prefix}`,
    origin: `${url.protocol}//${url.hostname}:${port}${prefix}`,
  }
  return {
    ...name,
    instanceId: integer('id', 0, Number.MAX_SAFE_INTEGER) ?? instanceId ?? workerNumberAt(placeOf(name)),
    key: keyEnv !== undefined ? { env: keyEnv } : keyFile !== undefined ? { file: keyFile } : undefined,
    model: values.get('model'),
    blockSizeTokens: integer('block_size', 1, 65_536),
    ranks,
    eventsHost,
    eventsPort,
    replayPort,
    topic: values.get('topic'),
    natsSubject,
    requestSubject: isDoor ? undefined : requests,
    requestEndpoint: isDoor ? requests : undefined,
    maxBatchedTokens: integer('max_batched_tokens', 1, COUNT_MAX),
    kvBlocks: integer('kv_blocks', 1, COUNT_MAX),
    role: oneOf('role', WORKER_ROLES),
    handover: oneOf('handover', HANDOVERS),
    bootstrapHost: host('bootstrap_host'),
    bootstrapPort: integer('bootstrap_port', 1, 65_535),
    taints: [...new Set((values.get('taints') ?? '').split(',').map(taint => taint.trim()))].filter(Boolean),
  }
}

/**
 * A replay port with room for every rank: 1000 above the events port, or below if there is no room above.
 */
function freeReplayPort(eventsPort: number, lastRank: number): number {
  const distance = Math.max(1000, lastRank + 1)
  return eventsPort + distance + lastRank <= 65_535 ? eventsPort + distance : eventsPort - distance
}

/** The host as written in an endpoint; an IPv6 address may come without brackets. */
function tryHost(text: string): string | undefined {
  const host = /^[0-9a-f]*:[0-9a-f:.]+$/i.test(text) && text.split(':').length > 2 ? `[${text}]` : text
  const url = tryUrl(`http://${host}:1`)
  const isHost = url?.port === '1' && url.pathname === '/' && url.username === '' && url.search === ''
  return isHost && url.hash === '' && isEndpointHost(url.hostname) ? url.hostname : undefined
}

function tryUrl(text: string): URL | undefined {
  return URL.canParse(text) ? new URL(text) : undefined
}

const KEY_ADVICE =
  'put the key into a file and give ?key_file=PATH, or into the environment and give ?key_env=NAME'

/** What an error may show of a worker: the parts that name it, and the names of its parameters. */
export function openWorker(text: string): string {
  const trimmed = text.trim()
  if (trimmed === '') return ''
  return openUrl(HOST_AND_PORT.test(trimmed) ? `http://${trimmed}` : trimmed) ?? NOT_SHOWN
}
