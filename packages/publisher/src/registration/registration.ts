/**
 * Registration: a worker's entry at a broker: its content and its subject.
 *
 *   nats://…/homing.workers.NAMESPACE     presence (packages/transport): every second, until it says good-bye
 *   {"version": 1, "url": "http://10.0.0.1:8000?ranks=2&kv_blocks=27000"}
 *
 * With `"model_type": "Prefill"` or `"Decode"` in it, the worker takes that part of a request, as by `role=`
 * in its URL (model-type.ts).
 *
 * With `requests=SUBJECT` the worker takes requests under that subject, too: from routers with
 * --request-plane nats. The URL has the form of `--worker`: its query contains everything that a router must
 * know and cannot ask the engine.
 */

import { parseJson } from '@homing/base'
import { presenceEndpoint } from '@homing/transport'
import { BadRegistrationError } from './errors.ts'
import { withRole } from './model-type.ts'

const VERSION = 1
const URL_CHARACTERS_MAX = 4096
const NAMESPACE = /^[A-Za-z0-9_-]{1,64}$/
/** What a namespace must be, of workers that register and of streams. */
export const NAMESPACE_EXPECTED = "1 to 64 letters, digits, '-' and '_'"
/** A stranger must not make a router read its own files, or send their content to the stranger. */
const SECRETS = ['key_file', 'key_env']

export function isNamespace(text: string): boolean {
  return NAMESPACE.test(text)
}

/**
 * At a broker: `servers` are 'host:port' each; at etcd: 'http://host:port' or 'https://host:port' each,
 * all of one kind. Throws BadRegistrationError.
 */
export function registrationEndpoint(servers: readonly string[], namespace: string): string {
  if (!isNamespace(namespace)) throw new BadRegistrationError('the namespace', namespace, NAMESPACE_EXPECTED)
  return presenceEndpoint(servers, `homing.workers.${namespace}`)
}

/**
 * The subject under which a worker takes requests that names none: 'homing.requests.10_0_0_1_8000' for host
 * and port 10.0.0.1:8000.
 */
export function requestSubjectOf(workerId: string): string {
  return `homing.requests.${workerId.replace(/[^A-Za-z0-9-]/g, '_')}`
}

/** Throws BadRegistrationError. */
export function encodeRegistration(url: string, modelType?: string): Uint8Array {
  const fault = faultOfUrl(url)
  if (fault !== undefined) throw new BadRegistrationError('the URL', url, fault)
  if (modelType !== undefined) {
    const read = withRole(url, modelType)
    if ('fault' in read) throw new BadRegistrationError('the model type', modelType, read.wanted)
  }
  return Buffer.from(JSON.stringify({ version: VERSION, url, model_type: modelType }))
}

/** The URL of a worker, or what is wrong with its registration. */
export function readRegistration(card: Uint8Array): { readonly url: string } | { readonly fault: string } {
  let word: unknown
  try {
    word = parseJson(Buffer.from(card).toString())
  } catch {
    return { fault: 'it is no JSON' }
  }
  if (typeof word !== 'object' || word === null) return { fault: 'it is no object' }
  const {
    version,
    url,
    model_type: type,
  } = word as { readonly version?: unknown; readonly url?: unknown; readonly model_type?: unknown }
  if (version !== VERSION)
    return { fault: `its version is ${typeof version === 'number' ? version : 'no number'}, not ${VERSION}` }
  if (typeof url !== 'string') return { fault: 'it has no url' }
  const fault = faultOfUrl(url)
  if (fault !== undefined) return { fault: `its url is not ${fault}` }
  return type === undefined || type === null ? { url } : withRole(url, type)
}

/** What a URL must be instead; undefined: the URL is right. */
function faultOfUrl(url: string): string | undefined {
  const parsed = url.length <= URL_CHARACTERS_MAX && URL.canParse(url) ? new URL(url) : undefined
  if (parsed === undefined || !['http:', 'https:'].includes(parsed.protocol))
    return 'http://host:port, or https'
  return SECRETS.some(name => parsed.searchParams.has(name))
    ? `a URL without ${SECRETS.join(' and ')}: keys of registered workers are those of the router`
    : undefined
}
