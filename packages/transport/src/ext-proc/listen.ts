/**
 * The ext_proc listener: a gRPC server on sockets of its own, with Envoy's streams and the health service.
 *
 * The sockets are ours, and each is handed to the library: so their number is bounded, a port can be shared
 * with other threads, and a new certificate counts for the next connection.
 *
 * Bounds   `connectionsMax` and `streamsMax`; `bodyBytesMax` and a little for a frame, MESSAGE_BYTES_MAX at
 *          most. A stream without a frame ends after `bodySilenceMsMax`. One whose Envoy takes no bytes is
 *          read no further. An Envoy that has vanished is noticed after KEEPALIVE_MS + KEEPALIVE_ANSWER_MS.
 */

import { createServer, type Server, type Socket } from 'node:net'
import type * as grpc from '@grpc/grpc-js'
import type { Clock } from '@homing/base'
import { callFor } from '../callback.ts'
import { ListenError } from '../errors.ts'
import type { ExtProcCounts, ExtProcListener, ExtProcOptions, PickedExchange } from '../ext-proc-types.ts'
import type { TlsIdentity } from '../http-types.ts'
import { sharedPort } from '../shared-port.ts'
import { Endpoints } from './endpoints.ts'
import { EXT_PROC_SERVICE, Health, type HealthAnswer, type HealthQuestion } from './health.ts'
import { type ExtProcLibraries, type Grpc, loadExtProc } from './libraries.ts'
import { PickedStream } from './picked-stream.ts'
import type { ExtProcSchema, ProcessingRequest } from './schema.ts'
import { selfSignedIdentity } from './self-signed.ts'

/** A buffered body is one frame; longer ones come in pieces. */
const MESSAGE_BYTES_MAX = 256 * 2 ** 20
/** Of a frame, beside a body in it: headers, trailers, metadata. */
const BESIDE_BODY_BYTES_MAX = 2 ** 20
const KEEPALIVE_MS = 30_000
const KEEPALIVE_ANSWER_MS = 10_000
const INVALID_ARGUMENT = 3
const DEADLINE_EXCEEDED = 4
const RESOURCE_EXHAUSTED = 8
const NAME = 'homing'

/** What is written to it is encoded already. */
type Stream = grpc.ServerDuplexStream<ProcessingRequest, Buffer>

/** Rejects with ListenError, and with NotInstalledError. */
export async function listenExtProc(
  options: ExtProcOptions,
  clock: Clock,
  onExchange: (exchange: PickedExchange) => void,
): Promise<ExtProcListener> {
  const listener = new Listener(options, clock, await loadExtProc(), onExchange)
  await listener.open()
  return listener
}

class Listener implements ExtProcListener {
  readonly host: string
  port = 0
  healthPort: number | undefined
  readonly counts: ExtProcCounts = {
    streams: 0,
    ended: 0,
    left: 0,
    refused: 0,
    moved: 0,
    malformed: 0,
    full: 0,
  }
  readonly #options: ExtProcOptions
  readonly #clock: Clock
  readonly #grpc: Grpc
  readonly #schema: ExtProcSchema
  readonly #onExchange: (exchange: PickedExchange) => void
  readonly #endpoints: Endpoints
  readonly #health = new Health()
  readonly #server: grpc.Server
  readonly #probes: grpc.Server
  #injector: grpc.ConnectionInjector
  /** All that were made: connections stay with that of their certificate. */
  readonly #injectors: grpc.ConnectionInjector[] = []
  readonly #sockets = new Set<Socket>()
  /** Called when the last connection has closed. */
  #onEmpty: () => void = () => {}
  readonly #listening: Server[] = []
  #closing: Promise<void> | undefined

  constructor(
    options: ExtProcOptions,
    clock: Clock,
    { grpc: library, schema }: ExtProcLibraries,
    onExchange: (exchange: PickedExchange) => void,
  ) {
    this.host = options.host
    this.#options = options
    this.#clock = clock
    this.#grpc = library
    this.#schema = schema
    this.#onExchange = onExchange
    this.#endpoints = new Endpoints(clock)
    const shared = {
      'grpc.enable_channelz': 0,
      'grpc.max_concurrent_streams': options.streamsMax,
      'grpc.max_receive_message_length': Math.min(
        MESSAGE_BYTES_MAX,
        options.bodyBytesMax + BESIDE_BODY_BYTES_MAX,
      ),
      'grpc.max_send_message_length': -1,
      'grpc.keepalive_time_ms': KEEPALIVE_MS,
      'grpc.keepalive_timeout_ms': KEEPALIVE_ANSWER_MS,
    }
    this.#server = new library.Server(shared)
    this.#probes = new library.Server({ ...shared, 'grpc.max_receive_message_length': 4096 })
    this.#server.addService(this.#processing(), { Process: (stream: Stream) => this.#process(stream) })
    for (const server of [this.#server, this.#probes])
      server.addService(this.#healthChecks(), {
        Check: this.#health.check.bind(this.#health),
        Watch: this.#health.watch.bind(this.#health),
      })
    this.#injector = this.#injectorFor(options.tls)
  }

  async open(): Promise<void> {
    const { host, port, isShared = false, healthPort } = this.#options
    this.port = await this.#listen(host, port, isShared, () => this.#injector)
    if (healthPort === undefined) return
    const plain = this.#probes.createConnectionInjector(this.#grpc.ServerCredentials.createInsecure())
    this.#injectors.push(plain)
    try {
      this.healthPort = await this.#listen(host, healthPort, isShared, () => plain)
    } catch (thrown) {
      await this.close(0)
      throw thrown
    }
  }

  setServing(isServing: boolean): void {
    this.#health.setServing(isServing)
  }

  setIdentity(identity: TlsIdentity): void {
    this.#injector = this.#injectorFor(identity)
  }

  close(graceMs: number): Promise<void> {
    this.#closing ??= this.#close(graceMs)
    return this.#closing
  }

  async #close(graceMs: number): Promise<void> {
    this.#health.setServing(false)
    this.#health.close()
    for (const server of this.#listening) server.close()
    const { promise: over, resolve } = Promise.withResolvers<void>()
    const timer = this.#clock.after(graceMs, resolve)
    this.#onEmpty = resolve
    // Each connection is told to go away, and ends with its last stream.
    for (const injector of this.#injectors) injector.drain(graceMs)
    if (this.#sockets.size > 0) await over
    timer.cancel()
    this.#server.forceShutdown()
    this.#probes.forceShutdown()
    for (const socket of this.#sockets) socket.destroy()
  }

  #listen(
    host: string,
    port: number,
    isShared: boolean,
    injector: () => grpc.ConnectionInjector,
  ): Promise<number> {
    const server = createServer({ noDelay: true }, socket => {
      if (this.#sockets.size >= this.#options.connectionsMax) {
        this.counts.full++
        socket.destroy()
        return
      }
      this.#sockets.add(socket)
      socket.once('close', () => {
        this.#sockets.delete(socket)
        if (this.#sockets.size === 0) this.#onEmpty()
      })
      // A connection that breaks ends its streams; there is nothing else to tell.
      socket.on('error', () => socket.destroy())
      injector().injectConnection(socket)
    })
    this.#listening.push(server)
    return new Promise((resolve, reject) => {
      const failed = (thrown: Error): void => reject(new ListenError(`grpc://${host}:${port}`, thrown))
      server.once('error', failed)
      const listening = (): void => {
        server.off('error', failed)
        // The system has no connection left, for want of open files.
        server.on('error', () => this.counts.full++)
        const address = server.address()
        resolve(typeof address === 'object' && address !== null ? address.port : port)
      }
      try {
        server.listen({ host, port, ...sharedPort(isShared && port !== 0) }, listening)
      } catch (thrown) {
        failed(thrown as Error)
      }
    })
  }

  #injectorFor(tls: ExtProcOptions['tls']): grpc.ConnectionInjector {
    const injector = this.#server.createConnectionInjector(this.#credentials(tls))
    this.#injectors.push(injector)
    return injector
  }

  #credentials(tls: ExtProcOptions['tls']): grpc.ServerCredentials {
    const { ServerCredentials } = this.#grpc
    if (tls === 'off') return ServerCredentials.createInsecure()
    const { certificate, key } = tls === 'self-signed' ? selfSignedIdentity(NAME, this.#clock.wallMs()) : tls
    const pair = { cert_chain: Buffer.from(certificate), private_key: Buffer.from(key) }
    return ServerCredentials.createSsl(null, [pair])
  }

  #process(stream: Stream): void {
    const { counts } = this
    const { response } = this.#schema
    if (counts.streams >= this.#options.streamsMax) {
      counts.full++
      stream.emit('error', {
        code: RESOURCE_EXHAUSTED,
        details: `there are ${this.#options.streamsMax} streams, as many as --max-open-requests allows`,
      })
      return
    }
    counts.streams++
    let isOver = false
    let isPaused = false
    const end = (): void => {
      if (isOver) return
      isOver = true
      first.cancel()
      counts.streams--
      picked.ended()
    }
    const { bodySilenceMsMax } = this.#options
    const first = this.#clock.after(bodySilenceMsMax, () => {
      const details = `no frame came within ${bodySilenceMsMax} ms (--body-timeout)`
      stream.emit('error', { code: DEADLINE_EXCEEDED, details })
    })
    const peer = stream.getPeer()
    const picked = new PickedStream({
      clock: this.#clock,
      endpoints: this.#endpoints,
      counts,
      peerAddress: peer.slice(0, Math.max(0, peer.lastIndexOf(':'))),
      bodySilenceMsMax,
      send: message => {
        // Encoded here and now: its bytes may be another's later.
        if (isOver || stream.write(response.encode(message))) return
        if (isPaused) return
        isPaused = true
        stream.pause()
        stream.once('drain', () => {
          isPaused = false
          stream.resume()
        })
      },
      finish: fault => {
        if (isOver) return
        if (fault === undefined) stream.end()
        else stream.emit('error', { code: INVALID_ARGUMENT, details: fault })
      },
      begin: this.#onExchange,
    })
    stream.on('data', (request: ProcessingRequest) => {
      first.cancel()
      if (!callFor(peer, () => picked.frame(request))) stream.destroy()
    })
    stream.on('end', () => {
      end()
      stream.end()
    })
    stream.on('cancelled', end)
    stream.on('close', end)
    // What broke is the connection or a frame; either ends the stream.
    stream.on('error', end)
  }

  #processing(): grpc.ServiceDefinition {
    const { request, response } = this.#schema
    return {
      Process: {
        path: `/${EXT_PROC_SERVICE}/Process`,
        requestStream: true,
        responseStream: true,
        requestSerialize: (message: ProcessingRequest) => request.encode(message),
        requestDeserialize: bytes => request.decode(bytes),
        responseSerialize: (encoded: Buffer) => encoded,
        responseDeserialize: bytes => response.decode(bytes),
      },
    }
  }

  #healthChecks(): grpc.ServiceDefinition {
    const { healthRequest, healthResponse } = this.#schema
    const method = (name: string, responseStream: boolean) => ({
      path: `/grpc.health.v1.Health/${name}`,
      requestStream: false,
      responseStream,
      requestSerialize: (message: HealthQuestion) => healthRequest.encode(message),
      requestDeserialize: (bytes: Buffer) => healthRequest.decode(bytes),
      responseSerialize: (message: HealthAnswer) => healthResponse.encode(message),
      responseDeserialize: (bytes: Buffer) => healthResponse.decode(bytes),
    })
    return { Check: method('Check', false), Watch: method('Watch', true) }
  }
}
