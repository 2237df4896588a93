/** For tests and benches: an Envoy that asks about requests, as far as its gRPC client and its frames go. */

import type * as grpc from '@grpc/grpc-js'
import { loadExtProc } from './ext-proc/libraries.ts'
import {
  BODY_MODE,
  type CommonResponse,
  type ExtProcSchema,
  type ProcessingRequest,
  type ProcessingResponse,
} from './ext-proc/schema.ts'
import { DESTINATION } from './ext-proc/words.ts'

export { BODY_MODE, type ProcessingRequest, type ProcessingResponse } from './ext-proc/schema.ts'

const PROCESS = '/envoy.service.ext_proc.v3.ExternalProcessor/Process'
const CHECK = '/grpc.health.v1.Health/Check'
const NO_BYTES = new Uint8Array(0)

/** How a stream has ended, as gRPC says it. */
export interface StreamEnd {
  readonly code: number
  readonly details: string
}

export interface AskedRequest {
  readonly method?: string
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Undefined: it has none. */
  readonly body?: string | Uint8Array | undefined
  /** Number of pieces; default 1. */
  readonly pieces?: number
  readonly subset?: readonly string[] | string
  /** Default: FULL_DUPLEX_STREAMED both ways. 'untold': Envoys before 1.33 tell none. */
  readonly modes?: { readonly request: number; readonly response: number } | 'untold'
  /** The body ends with trailers. */
  readonly hasTrailers?: boolean
}

export class AskingEnvoy {
  readonly #client: grpc.Client
  readonly #schema: ExtProcSchema

  private constructor(client: grpc.Client, schema: ExtProcSchema) {
    this.#client = client
    this.#schema = schema
  }

  /** `isPlain`: without TLS; else any certificate is taken. */
  static async connect(port: number, isPlain = false): Promise<AskingEnvoy> {
    const { grpc: library, schema } = await loadExtProc()
    const { credentials, Client } = library
    const trusting = { rejectUnauthorized: false, checkServerIdentity: () => undefined }
    const how = isPlain ? credentials.createInsecure() : credentials.createSsl(null, null, null, trusting)
    // Each has a connection of its own.
    return new AskingEnvoy(
      new Client(`127.0.0.1:${port}`, how, { 'grpc.use_local_subchannel_pool': 1 }),
      schema,
    )
  }

  open(): AskingStream {
    const { request, response } = this.#schema
    const stream = this.#client.makeBidiStreamRequest(
      PROCESS,
      (frame: ProcessingRequest) => request.encode(frame),
      (bytes: Buffer) => response.decode(bytes),
    )
    return new AskingStream(stream)
  }

  /** Opens a stream, and sends the request as far as Envoy does in this mode without an answer. */
  ask(request: AskedRequest): AskingStream {
    const stream = this.open()
    stream.ask(request)
    return stream
  }

  /** The status of this service: 1 SERVING, 2 NOT_SERVING; or the error. */
  check(service: string): Promise<number | StreamEnd> {
    const { healthRequest, healthResponse } = this.#schema
    return new Promise(resolve => {
      this.#client.makeUnaryRequest(
        CHECK,
        (message: { readonly service?: string }) => healthRequest.encode(message),
        (bytes: Buffer) => healthResponse.decode(bytes),
        { service },
        (error, answer) =>
          resolve(error === null ? answer!.status : { code: error.code, details: error.details }),
      )
    })
  }

  close(): void {
    this.#client.close()
  }
}

export class AskingStream {
  readonly #stream: grpc.ClientDuplexStream<ProcessingRequest, ProcessingResponse>
  readonly #came: ProcessingResponse[] = []
  #waiting: ((response: ProcessingResponse | undefined) => void)[] = []
  #isOver = false
  readonly ended: Promise<StreamEnd>

  constructor(stream: grpc.ClientDuplexStream<ProcessingRequest, ProcessingResponse>) {
    this.#stream = stream
    stream.on('data', (response: ProcessingResponse) => {
      const next = this.#waiting.shift()
      if (next === undefined) this.#came.push(response)
      else next(response)
    })
    // `status` says it, too.
    stream.on('error', () => {})
    this.ended = new Promise(resolve => {
      stream.on('status', ({ code, details }: StreamEnd) => {
        this.#isOver = true
        for (const next of this.#waiting.splice(0)) next(undefined)
        resolve({ code, details })
      })
    })
  }

  send(frame: ProcessingRequest): void {
    this.#stream.write(frame)
  }

  ask(given: AskedRequest): void {
    const { body, modes = { request: BODY_MODE.fullDuplex, response: BODY_MODE.fullDuplex } } = given
    this.send(headersFrame(given))
    const isHeld = modes !== 'untold' && modes.request !== BODY_MODE.fullDuplex
    if (body !== undefined && !isHeld) this.sendBody(body, given.pieces, given.hasTrailers)
  }

  sendBody(body: string | Uint8Array, pieces = 1, hasTrailers = false): void {
    const bytes = Buffer.from(body as string)
    const size = Math.ceil(bytes.length / pieces)
    for (let piece = 0; piece < pieces; piece++) {
      const isEnd = piece === pieces - 1 && !hasTrailers
      this.send({
        request_body: { body: bytes.subarray(piece * size, (piece + 1) * size), end_of_stream: isEnd },
      })
    }
    if (hasTrailers) this.send({ request_trailers: {} })
  }

  /** The head of a worker's answer, as it came from `served`. */
  answerHead(
    status: number,
    headers: Readonly<Record<string, string>>,
    served?: string,
    isEnd = false,
  ): void {
    this.send({
      response_headers: {
        headers: { headers: headerList({ ':status': String(status), ...headers }) },
        end_of_stream: isEnd,
      },
      ...(served === undefined
        ? {}
        : { metadata_context: metadata('envoy.lb', `${DESTINATION}-served`, served) }),
    })
  }

  answerBody(body: string, isEnd: boolean): void {
    this.send({ response_body: { body: Buffer.from(body), end_of_stream: isEnd } })
  }

  /** Undefined: the stream is over. */
  next(): Promise<ProcessingResponse | undefined> {
    const came = this.#came.shift()
    if (came !== undefined || this.#isOver) return Promise.resolve(came)
    return new Promise(resolve => this.#waiting.push(resolve))
  }

  /** Envoy has nothing more to say. */
  end(): void {
    this.#stream.end()
  }

  /** The client has left, or Envoy has gone. */
  cancel(): void {
    this.#stream.cancel()
  }
}

function headersFrame(given: AskedRequest): ProcessingRequest {
  const { method = 'POST', path = '/v1/completions', headers = {}, body, subset, modes } = given
  const all = { ':method': method, ':path': path, ':authority': 'models.example', ...headers }
  const told = modes ?? { request: BODY_MODE.fullDuplex, response: BODY_MODE.fullDuplex }
  return {
    request_headers: { headers: { headers: headerList(all) }, end_of_stream: body === undefined },
    ...(told === 'untold'
      ? {}
      : { protocol_config: { request_body_mode: told.request, response_body_mode: told.response } }),
    ...(subset === undefined
      ? {}
      : { metadata_context: metadata('envoy.lb.subset_hint', `${DESTINATION}-subset`, subset) }),
  }
}

function headerList(headers: Readonly<Record<string, string>>) {
  return Object.entries(headers).map(([key, value]) => ({ key, raw_value: Buffer.from(value) }))
}

function metadata(namespace: string, key: string, value: string | readonly string[]) {
  const found =
    typeof value === 'string'
      ? { string_value: value }
      : { list_value: { values: value.map(one => ({ string_value: one })) } }
  return { filter_metadata: { [namespace]: { fields: { [key]: found } } } }
}

/** What Envoy is told to set, of the response to headers or to a body. */
export function setHeaders(response: ProcessingResponse | undefined): Readonly<Record<string, string>> {
  const set = commonOf(response)?.header_mutation?.set_headers ?? []
  return Object.fromEntries(
    set.map(({ header }) => [header.key, Buffer.from(header.raw_value ?? '').toString()]),
  )
}

/** 'ip:port,ip:port' of header and metadata; undefined where they are not there, or differ. */
export function destinationIn(response: ProcessingResponse | undefined): string | undefined {
  const told = response?.dynamic_metadata?.fields['envoy.lb']?.struct_value?.fields[DESTINATION]?.string_value
  return told === setHeaders(response)[DESTINATION] ? told : undefined
}

/** The piece of a body that goes on in its place. */
export function pieceIn(
  response: ProcessingResponse | undefined,
): { readonly text: string; readonly isEnd: boolean } | undefined {
  const piece = commonOf(response)?.body_mutation?.streamed_response
  if (!piece) return undefined
  return { text: Buffer.from(piece.body ?? NO_BYTES).toString(), isEnd: piece.end_of_stream === true }
}

/** An answer at once; undefined: it is none. */
export function answerIn(response: ProcessingResponse | undefined) {
  const immediate = response?.immediate_response
  if (!immediate) return undefined
  return { status: immediate.status.code, body: Buffer.from(immediate.body).toString() }
}

export function commonOf(response: ProcessingResponse | undefined): CommonResponse | undefined {
  const { request_headers, request_body, response_headers, response_body } = response ?? {}
  return (request_headers ?? request_body ?? response_headers ?? response_body)?.response
}
