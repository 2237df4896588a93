/** Settings of a program that serves requests, and their checks. */

import { REQUEST_WINDOW_BYTES } from '@homing/transport'
import { BadRegistrationError } from './errors.ts'
import type { RequestHandler } from './handle-request.ts'

export interface RequestLimits {
  /** Larger bodies are answered with 413; default 64 MiB, at most 1 GiB. */
  readonly bodyBytesMax?: number
  /**
   * Most bytes of all bodies together, until they are released; requests beyond it are answered with 503.
   * Default 1 GiB.
   */
  readonly bodiesBytesMax?: number
  /**
   * A body that sends nothing for so long is answered with 408, in milliseconds, up to a second later. At
   * least 1000; default 60,000.
   */
  readonly bodySilenceMsMax?: number
  /** Requests above so many are answered with 503; default 4096. */
  readonly callsMax?: number
  /** Most bytes of a body that are on the way, or wait to be read; 4 KiB to 1 GiB, default 1 MiB. */
  readonly windowBytes?: number
}

/** What answers requests: a program, or the engine at a base URL such as 'http://127.0.0.1:8000'. */
export type ServeRequests = RequestLimits &
  ({ readonly handler: RequestHandler } | { readonly engine: string })

/** All of it, with the defaults. */
export type RequestSettings = Required<RequestLimits> & {
  /** A function, or the base URL of an engine. */
  readonly answerer: RequestHandler | string
}

const MIB = 2 ** 20
const GIB = 2 ** 30

/** Throws BadRegistrationError. */
export function requestSettingsOf(given: ServeRequests): RequestSettings {
  const bodyBytesMax = whole('bodyBytesMax', given.bodyBytesMax ?? 64 * MIB, 1, GIB)
  return {
    answerer: answererOf(given),
    bodyBytesMax,
    bodiesBytesMax: whole('bodiesBytesMax', given.bodiesBytesMax ?? GIB, bodyBytesMax, 1024 * GIB),
    bodySilenceMsMax: whole('bodySilenceMsMax', given.bodySilenceMsMax ?? 60_000, 1000, 86_400_000),
    callsMax: whole('callsMax', given.callsMax ?? 4096, 1, 1_000_000),
    windowBytes: whole(
      'windowBytes',
      given.windowBytes ?? MIB,
      REQUEST_WINDOW_BYTES.min,
      REQUEST_WINDOW_BYTES.max,
    ),
  }
}

function whole(name: string, value: number, min: number, max: number): number {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return value
  throw new BadRegistrationError(name, String(value), `a whole number from ${min} to ${max}`)
}

function answererOf(given: ServeRequests): RequestHandler | string {
  if ('handler' in given && typeof given.handler === 'function') return given.handler
  if (!('engine' in given) || typeof given.engine !== 'string')
    throw new BadRegistrationError('serve', JSON.stringify(given), 'a handler or an engine')
  const url = URL.parse(given.engine)
  const base = url === null ? '' : `${url.origin}${url.pathname}`
  const isBase = url !== null && ['http:', 'https:'].includes(url.protocol) && url.href === base
  if (isBase && !/\/v1\/?$/.test(base)) return base.replace(/\/$/, '')
  const shown = given.engine.replace(/\/\/[^/]*@/, '//***@')
  throw new BadRegistrationError('the engine', shown, 'http://host:port, or https, and a path without /v1')
}
