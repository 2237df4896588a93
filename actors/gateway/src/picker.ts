/**
 * Picker: serves the requests about which an Envoy asks, by its ext_proc streams (`--picker-port`).
 *
 *   Envoy ── stream ──▶ PickedExchange ──▶ Exchange: read, place, call, settle      as for any client
 *         ◀─ destination ───── call ◀──────┘
 *         ── answer, as it passes ──▶ head, data, end ──▶ first token, usage, health, settled
 *
 * The exchange is the gateway's own. It differs in what it may do: Envoy calls the worker, so nothing is
 * placed again, sliced, continued or computed elsewhere first, and no usage is asked for that the client
 * would see. If Envoy could not reach the first endpoint, the exchange is placed anew at the one that
 * answered.
 *
 * Every path goes to a worker: that is for the routes of the gateway in front to choose. Prompts are read on
 * the paths of the API, and on those that end with them; all else is placed by load.
 */

import type { CompletionRoute } from '@homing/actors/tokenizer'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Fleet, WorkerRecord } from '@homing/fleet'
import type { Decision, RoutingRequest } from '@homing/placement'
import { WorkerFilter } from '@homing/selection'
import type {
  ExtProcListener,
  HttpCall,
  HttpRequest,
  HttpResponseHandler,
  PickedExchange,
  TlsIdentity,
  Transport,
} from '@homing/transport'
import { checkCallable, isCallable } from './callable-workers.ts'
import { decisionHeaders } from './client-answer.ts'
import { NO_CONSTRAINTS } from './client-models.ts'
import { NoEndpointError } from './errors.ts'
import type { CommonParts, ReadStep } from './exchange-parts.ts'
import type { GatewayArgs } from './gateway-args.ts'
import type { PickerAddress, PickerArgs } from './picker-args.ts'
import type { RequestReader } from './request-reader.ts'
import { SliceTrust } from './slice-trust.ts'

/** What its exchanges have other than the gateway's. */
export type PickedParts = Pick<CommonParts, 'picked' | 'limits' | 'audit' | 'slices' | 'continuations'>

export interface PickerParts {
  readonly args: GatewayArgs & { readonly picker: PickerArgs }
  readonly extProc: Transport['extProc']
  /** The gateway's own certificate; undefined: it speaks plain HTTP. */
  readonly tls: () => TlsIdentity | undefined
  readonly fleet: () => Fleet
  readonly reader: RequestReader
  readonly common: Pick<CommonParts, 'limits' | 'continuations'>
  /** Serves one, by a name of the route table and its own parts. */
  readonly serve: (exchange: PickedExchange, route: string, read: ReadStep, parts: PickedParts) => void
}

const COMPLETIONS: readonly (readonly [suffix: string, route: CompletionRoute])[] = [
  ['/v1/chat/completions', 'chat'],
  ['/v1/completions', 'completions'],
  ['/v1/messages', 'messages'],
  ['/v1/responses', 'responses'],
]
/** Of the extension's conformance tests. */
const STEERING_HEADER = 'test-epp-endpoint-selection'
const SERVED_HEADER = 'x-conformance-test-served-endpoint'
const NEVER = 0

export class Picker {
  readonly #parts: PickerParts
  readonly #limits: CommonParts['limits']
  readonly #continuations: CommonParts['continuations']
  readonly #slices = new SliceTrust(NEVER)
  #listener: ExtProcListener | ErrorRecord | undefined
  /** Whose turn it is to stand behind the first. */
  #turn = 0

  constructor(parts: PickerParts) {
    this.#parts = parts
    const { limits, continuations } = parts.common
    this.#limits = { ...limits, retriesMax: 0, stallMsMin: NEVER, streamKeepAliveMs: NEVER, migrationsMax: 0 }
    this.#continuations = { ...continuations, limits: this.#limits }
  }

  /** Never rejects: `address` tells why it cannot listen. */
  async open(): Promise<void> {
    const { args, extProc, tls } = this.#parts
    const { picker, host, own, openRequestsMax, connectionsMax = openRequestsMax } = args
    const { bodySilenceMsMax, bodyBytesMax } = args
    try {
      if (extProc === undefined) throw new Error('this transport takes no ext_proc streams')
      const identity = picker.tls === 'files' ? tls() : picker.tls
      if (identity === undefined) throw new Error('there is no certificate: give --tls-cert and --tls-key')
      const { port, healthPort } = picker
      const isShared = own !== undefined
      const bounds = { streamsMax: openRequestsMax, connectionsMax, bodySilenceMsMax, bodyBytesMax }
      this.#listener = await extProc(
        { host, port, healthPort, isShared, tls: identity, ...bounds },
        exchange => this.#begin(exchange),
      )
    } catch (thrown) {
      this.#listener = toErrorRecord(thrown)
    }
  }

  get address(): PickerAddress | ErrorRecord {
    const listener = this.#listener!
    return 'code' in listener ? listener : { port: listener.port, healthPort: listener.healthPort }
  }

  get counts(): ExtProcListener['counts'] | undefined {
    return this.#open?.counts
  }

  setServing(isServing: boolean): void {
    this.#open?.setServing(isServing)
  }

  setIdentity(identity: TlsIdentity): void {
    if (this.#parts.args.picker.tls === 'files') this.#open?.setIdentity(identity)
  }

  async close(graceMs: number): Promise<void> {
    await this.#open?.close(graceMs)
  }

  get #open(): ExtProcListener | undefined {
    const listener = this.#listener
    return listener === undefined || 'code' in listener ? undefined : listener
  }

  #begin(exchange: PickedExchange): void {
    const { reader, serve, fleet } = this.#parts
    const found = COMPLETIONS.find(([suffix]) => exchange.path.endsWith(suffix))
    const route = exchange.method === 'POST' ? found?.[1] : undefined
    let routing: RoutingRequest | undefined
    const read: ReadStep = async (http, hold, note) => {
      const allowed = await this.#allowed(exchange)
      const ready =
        route === undefined
          ? await reader.relayed(http, hold, exchange.isBodySent)
          : await reader.completion(http, route, hold, note, model => checkCallable(fleet(), model))
      if (ready === undefined) return undefined
      ready.prompt?.giveUp()
      checkCallable(fleet(), ready.routing.model)
      routing = narrowed(narrowed(ready.routing, allowed), callable(fleet(), ready.routing.model))
      return { ...ready, routing, prompt: undefined, legs: undefined }
    }
    serve(exchange, route ?? 'other', read, {
      picked: {
        way: decision => ({
          call: (request, handler) => this.#call(exchange, { request, handler, decision, routing: routing! }),
        }),
        instanceAt: origin =>
          this.#parts.fleet().workers.find(worker => worker.origin === origin)?.instanceId,
      },
      limits: this.#limits,
      continuations: this.#continuations,
      slices: this.#slices,
      audit: false,
    })
  }

  #call(
    exchange: PickedExchange,
    {
      request,
      handler,
      decision,
      routing,
    }: {
      readonly request: HttpRequest
      readonly handler: HttpResponseHandler
      readonly decision: Decision
      readonly routing: RoutingRequest
    },
  ): HttpCall {
    const { isConformance } = this.#parts.args.picker
    const others = this.#others(decision, routing)
    const answerHeaders = decisionHeaders(decision)
    return exchange.call(
      { ...request, others, answerHeaders, ...(isConformance ? { servedHeader: SERVED_HEADER } : {}) },
      handler,
    )
  }

  /** Others that could take it, in turn, so that the requests of one that fails go to several. */
  #others({ origin, pinRank, unwell }: Decision, request: RoutingRequest): readonly string[] {
    const { fallbacks } = this.#parts.args.picker
    const { model, constraints, pinnedInstanceId, pinnedRank } = request
    // The header names a rank of the first.
    if (fallbacks === 0 || pinRank || pinnedInstanceId !== undefined || pinnedRank !== undefined) return []
    const filter = new WorkerFilter(constraints)
    const fit = this.#parts
      .fleet()
      .workers.filter(
        worker =>
          worker.origin !== origin &&
          takesWhole(worker) &&
          isCallable(worker, model) &&
          unwell?.includes(worker.id) !== true &&
          (model === '' || worker.models.some(({ name }) => name === model)) &&
          filter.reasonAgainst(worker) === undefined,
      )
    const first = fit.length === 0 ? 0 : this.#turn++ % fit.length
    return [...fit.slice(first), ...fit.slice(0, first)].slice(0, fallbacks).map(worker => worker.origin)
  }

  /** Ids of the workers among which is to be chosen; undefined: all. Throws NoEndpointError for none. */
  async #allowed(exchange: PickedExchange): Promise<ReadonlySet<number> | undefined> {
    const { args, fleet } = this.#parts
    const steered = args.picker.isConformance ? exchange.headers[STEERING_HEADER] : undefined
    const lists = [exchange.subset, typeof steered === 'string' ? steered.split(',') : undefined]
    const given = lists.filter(list => list !== undefined)
    if (given.length === 0) return undefined
    let workers = fleet().workers
    for (const list of given) {
      const isIn = await Promise.all(workers.map(({ origin }) => exchange.isAmong(origin, list)))
      workers = workers.filter((_, index) => isIn[index])
    }
    if (workers.length === 0) throw new NoEndpointError(given.flat())
    return new Set(workers.map(({ instanceId }) => instanceId))
  }
}

function takesWhole({ state, isDraining, role }: WorkerRecord): boolean {
  return state === 'up' && isDraining !== true && role?.value !== 'prefill'
}

/** Undefined: all of them. */
function callable({ workers }: Fleet, model: string): ReadonlySet<number> | undefined {
  if (workers.every(worker => isCallable(worker, model))) return undefined
  const able = workers.filter(worker => isCallable(worker, model))
  return new Set(able.map(({ instanceId }) => instanceId))
}

function narrowed(request: RoutingRequest, allowed: ReadonlySet<number> | undefined): RoutingRequest {
  if (allowed === undefined) return request
  const given = request.constraints?.allowedInstanceIds
  const ids = [...allowed].filter(id => given?.includes(id) !== false)
  return {
    ...request,
    constraints: { ...(request.constraints ?? NO_CONSTRAINTS), allowedInstanceIds: ids },
  }
}
