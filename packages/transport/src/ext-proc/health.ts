/**
 * gRPC's health service (grpc.health.v1), as the endpoint picker protocol wants it: `liveness` is SERVING
 * while the process answers, all others as its owner says of readiness.
 *
 * Bounds   WATCHERS_MAX open watches; a further one is refused.
 */

import type { ServerUnaryCall, ServerWritableStream, sendUnaryData } from '@grpc/grpc-js'

const STATUS = { serving: 1, notServing: 2, unknownService: 3 } as const
export const EXT_PROC_SERVICE = 'envoy.service.ext_proc.v3.ExternalProcessor'
const LIVENESS = 'liveness'
/** '' is the whole server; the last is what manifests of the extension's own picker ask for. */
const SERVICES: ReadonlySet<string> = new Set([
  '',
  LIVENESS,
  'readiness',
  EXT_PROC_SERVICE,
  'inference-extension',
])
const SERVICE_UNKNOWN = 5
const RESOURCE_EXHAUSTED = 8
const WATCHERS_MAX = 64

export interface HealthQuestion {
  readonly service?: string
}

export interface HealthAnswer {
  readonly status: number
}

type Watch = ServerWritableStream<HealthQuestion, HealthAnswer>

export class Health {
  readonly #watchers = new Map<Watch, string>()
  #isServing = false

  setServing(isServing: boolean): void {
    if (isServing === this.#isServing) return
    this.#isServing = isServing
    for (const [watch, service] of this.#watchers)
      if (service !== LIVENESS) watch.write(this.#statusOf(service))
  }

  check(call: ServerUnaryCall<HealthQuestion, HealthAnswer>, reply: sendUnaryData<HealthAnswer>): void {
    const service = call.request.service ?? ''
    if (SERVICES.has(service)) reply(null, this.#statusOf(service))
    else reply({ code: SERVICE_UNKNOWN, details: `unknown service ${JSON.stringify(service.slice(0, 100))}` })
  }

  watch(call: Watch): void {
    if (this.#watchers.size >= WATCHERS_MAX) {
      call.emit('error', { code: RESOURCE_EXHAUSTED, details: `there are ${WATCHERS_MAX} watches` })
      return
    }
    const service = call.request.service ?? ''
    this.#watchers.set(call, service)
    call.on('cancelled', () => this.#watchers.delete(call))
    call.on('close', () => this.#watchers.delete(call))
    call.write(this.#statusOf(service))
  }

  /** Ends all watches, so that nothing keeps the server from closing. */
  close(): void {
    for (const watch of this.#watchers.keys()) watch.end()
    this.#watchers.clear()
  }

  #statusOf(service: string): HealthAnswer {
    if (!SERVICES.has(service)) return { status: STATUS.unknownService }
    const isServing = service === LIVENESS || this.#isServing
    return { status: isServing ? STATUS.serving : STATUS.notServing }
  }
}
