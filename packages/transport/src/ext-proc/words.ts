/**
 * Words of the endpoint picker protocol, in Envoy's messages: which endpoints a request may go to, where it
 * is to go, and where it went. Pure.
 *
 *   metadata_context   envoy.lb.subset_hint / x-gateway-destination-endpoint-subset   in: only one of these
 *   dynamic_metadata   envoy.lb / x-gateway-destination-endpoint                      out: 'ip:port,ip:port'
 *   header             x-gateway-destination-endpoint                                 out: the same
 *   metadata_context   envoy.lb / x-gateway-destination-endpoint-served               in: which of these it
 *   was
 *
 * Source   docs/proposals/004-endpoint-picker-protocol of kubernetes-sigs/gateway-api-inference-extension,
 *          version 1.0.0.
 */

import { CONNECTION_HEADERS } from '../connection-headers.ts'
import type { HttpHeaders } from '../http-types.ts'
import type {
  CommonResponse,
  HeaderList,
  HeaderMutation,
  ProcessingRequest,
  ProcessingResponse,
  StructValue,
} from './schema.ts'

export const DESTINATION = 'x-gateway-destination-endpoint'
const SERVED = 'x-gateway-destination-endpoint-served'
const SUBSET = 'x-gateway-destination-endpoint-subset'
const LOAD_BALANCING = 'envoy.lb'
const SUBSET_HINT = 'envoy.lb.subset_hint'
/** OVERWRITE_IF_EXISTS_OR_ADD. */
const OVERWRITE = 2
/** Gateways are known to take chunks of 64 KiB at most. */
const CHUNK_BYTES_MAX = 62_000

/** Headers of one connection, and those that Envoy keeps itself: no answer changes them. */
const ENVOYS_OWN: ReadonlySet<string> = new Set([...CONNECTION_HEADERS, 'content-length', 'expect', 'host'])

/** A request line and headers as HTTP/1 would have them. */
export interface ReadHead {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly status: number
  readonly headers: HttpHeaders
}

export function readHead(list: HeaderList | null | undefined): ReadHead {
  const headers: Record<string, string | readonly string[]> = {}
  let [method, target, status] = ['GET', '/', 0]
  for (const { key, value, raw_value: raw } of list?.headers ?? []) {
    const text =
      raw !== undefined && raw.length > 0
        ? Buffer.from(raw.buffer, raw.byteOffset, raw.length).toString('latin1')
        : (value ?? '')
    const name = key.toLowerCase()
    if (name === ':method') method = text
    else if (name === ':path') target = text
    else if (name === ':status') status = Number(text)
    else if (name === ':authority') headers['host'] = text
    else if (!name.startsWith(':')) {
      const before = headers[name]
      headers[name] =
        before === undefined
          ? text
          : name === 'set-cookie'
            ? [before, text].flat()
            : `${String(before)}${name === 'cookie' ? '; ' : ', '}${text}`
    }
  }
  const queryAt = target.indexOf('?')
  return {
    method,
    path: queryAt === -1 ? target : target.slice(0, queryAt),
    query: queryAt === -1 ? '' : target.slice(queryAt + 1),
    status: Number.isInteger(status) ? status : 0,
    headers,
  }
}

/** Endpoints of which one is to be chosen, as Envoy names them; undefined: any. */
export function subsetOf({ metadata_context: context }: ProcessingRequest): readonly string[] | undefined {
  const value = context?.filter_metadata?.[SUBSET_HINT]?.fields?.[SUBSET]
  return value === undefined ? undefined : textsOf(value)
}

/** The endpoint that answered; undefined: Envoy does not say. */
export function servedOf({ metadata_context: context }: ProcessingRequest): string | undefined {
  const value = context?.filter_metadata?.[LOAD_BALANCING]?.fields?.[SERVED]
  return value === undefined ? undefined : textsOf(value)[0]
}

/** A text with commas, or a list of such texts. */
function textsOf({ string_value: text, list_value: list }: StructValue): readonly string[] {
  const texts = list?.values.map(({ string_value }) => string_value ?? '') ?? [text ?? '']
  return texts.flatMap(one => one.split(',').map(endpoint => endpoint.trim())).filter(one => one !== '')
}

/** Where Envoy is to send the request: the first that it can reach of `endpoints`. */
export function destination(endpoints: readonly string[]): {
  readonly metadata: NonNullable<ProcessingResponse['dynamic_metadata']>
  readonly header: readonly [name: string, value: string]
} {
  const text = endpoints.join(',')
  const fields = { [DESTINATION]: { string_value: text } }
  return {
    metadata: { fields: { [LOAD_BALANCING]: { struct_value: { fields } } } },
    header: [DESTINATION, text],
  }
}

/** What turns `given` into `wanted`. */
export function mutationOf(
  given: HttpHeaders,
  wanted: HttpHeaders,
  more: readonly (readonly [string, string])[] = [],
): HeaderMutation {
  const set = [...more]
  for (const name in wanted) {
    const value = wanted[name]
    if (value !== undefined && value !== given[name] && !ENVOYS_OWN.has(name)) set.push([name, String(value)])
  }
  const removed = Object.keys(given).filter(name => wanted[name] === undefined && !ENVOYS_OWN.has(name))
  return { ...setting(set), remove_headers: removed }
}

/** Header values are Latin-1 to HTTP, and to us. */
export function setting(headers: readonly (readonly [string, string])[]): HeaderMutation {
  return {
    set_headers: headers.map(([key, value]) => ({
      header: { key, raw_value: Buffer.from(value, 'latin1') },
      append_action: OVERWRITE,
    })),
  }
}

/** A body as the pieces of a stream that goes on (`isEnd` false) or ends with it. */
export function* streamedBody(bytes: Uint8Array, isEnd: boolean): Generator<CommonResponse> {
  let at = 0
  do {
    const end = Math.min(at + CHUNK_BYTES_MAX, bytes.length)
    const body = bytes.subarray(at, end)
    at = end
    yield { body_mutation: { streamed_response: { body, end_of_stream: isEnd && at === bytes.length } } }
  } while (at < bytes.length)
}

export function immediate(
  status: number,
  headers: HttpHeaders,
  body: Uint8Array,
  details: string,
): ProcessingResponse {
  const set = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined || ENVOYS_OWN.has(name) ? [] : [[name, String(value)] as const],
  )
  return { immediate_response: { status: { code: status }, headers: setting(set), body, details } }
}
