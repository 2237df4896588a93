/** What a server says of itself before a load: its first model, and the block size of a router's workers. */

import { CodedError, parseJson } from '@homing/base'
import type { HttpTransport } from '@homing/transport'

/** A server cannot be loaded: it does not answer, or names no model. */
export class TargetError extends CodedError {
  readonly code = 'HOMING_LOAD_TARGET'

  constructor(url: string, reason: string, cause?: unknown) {
    super(`cannot load ${url}: ${reason}`, { url, reason }, { cause })
  }
}

const ASKED_MS_MAX = 10_000

/** The base of the API's routes: a URL as people give it, with or without /v1. */
export function originOf(url: string): string {
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname.replace(/\/+$/, '').replace(/\/v1$/, '')}`
}

/** Rejects with TargetError. */
export async function firstModel(http: Pick<HttpTransport, 'fetch'>, origin: string): Promise<string> {
  const why = 'or name the model with --model'
  const reply = await http
    .fetch({ origin, method: 'GET', path: '/v1/models' }, { timeoutMs: ASKED_MS_MAX })
    .catch((error: CodedError) => {
      throw new TargetError(origin, `GET /v1/models: ${error.details['reason'] ?? error.message}`, error)
    })
  if (reply.status !== 200) {
    const key =
      reply.status === 401 || reply.status === 403 ? '; give --api-key-file' : `; look at it, ${why}`
    throw new TargetError(origin, `GET /v1/models answers ${reply.status}${key}`)
  }
  const { data } = (tryJson(reply.body) ?? {}) as { readonly data?: readonly { readonly id?: unknown }[] }
  const id = Array.isArray(data) ? data[0]?.id : undefined
  if (typeof id !== 'string')
    throw new TargetError(origin, `GET /v1/models names no model; wait for one, ${why}`)
  return id
}

/** Undefined: it is no homing router, its operator routes are elsewhere, or its workers differ. */
export async function blockTokensOf(
  http: Pick<HttpTransport, 'fetch'>,
  origin: string,
): Promise<number | undefined> {
  const reply = await http
    .fetch({ origin, method: 'GET', path: '/workers' }, { timeoutMs: ASKED_MS_MAX })
    .catch(() => undefined)
  if (reply?.status !== 200) return undefined
  const sizes = new Set(
    Buffer.from(reply.body)
      .toString()
      .match(/"block_size":\s*(\{[^}]*?"value":\s*)?\d+/g)
      ?.map(text => Number(/\d+$/.exec(text)![0])),
  )
  return sizes.size === 1 ? [...sizes][0] : undefined
}

function tryJson(body: Uint8Array): unknown {
  try {
    return parseJson(Buffer.from(body).toString())
  } catch {
    return undefined
  }
}
