/**
 * Client models: which models a request may be for. A key of --client-keys-file may name them; every other
 * model is to such a client as if it were not there.
 */

import { parseJson } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { readModel, scanRequest } from '@homing/openai'
import type { RoutingRequest } from '@homing/placement'
import type { HttpExchange } from '@homing/transport'
import { ModelUnreadError } from './errors.ts'
import { hiddenModelError, leaseOf, modelsOf } from './keyed-exchange.ts'

export interface ClientModelsParts {
  readonly fleet: () => Fleet
  /** The model behind a name. */
  readonly servedModel: (name: string) => string
  /** Counts a request that is refused for its model. */
  readonly refused: () => void
}

export const NO_CONSTRAINTS = { requiredTaints: [], preferredTaints: {} } as const

export class ClientModels {
  readonly #parts: ClientModelsParts

  constructor(parts: ClientModelsParts) {
    this.#parts = parts
  }

  /** Throws what the client gets for a model that it may not use. */
  check(exchange: HttpExchange, model: string): void {
    if (modelsOf(exchange, this.#parts.servedModel)?.has(model) !== false) return
    this.#parts.refused()
    throw hiddenModelError(exchange, model)
  }

  /**
   * The same for what a body names, before its prompt is read: its model, and adapters that SGLang takes
   * beside the model, which are models, too. Throws MalformedJsonError and InvalidRequestError as well.
   */
  checkBody(exchange: HttpExchange, body: Uint8Array): void {
    if (leaseOf(exchange)?.key.models === undefined || body.length === 0) return
    const scan = scanRequest(body)
    const model = readModel(body, scan)
    if (model !== undefined) this.check(exchange, this.#parts.servedModel(model))
    const value = scan.byName.get('lora_path')?.value
    if (value === undefined) return
    const given: unknown = parseJson(textOf(body.subarray(value.start, value.end)))
    for (const name of [given].flat()) if (name !== null) this.check(exchange, String(name))
  }

  /**
   * The same for relayed routes, some of which name no model: then only workers may be chosen whose own model
   * the client may use. `unread`: why its model is not known, though it may name one.
   */
  within(exchange: HttpExchange, request: RoutingRequest, unread: string | undefined): RoutingRequest {
    const allowed = modelsOf(exchange, this.#parts.servedModel)
    if (allowed === undefined) return request
    if (unread !== undefined) {
      this.#parts.refused()
      throw new ModelUnreadError(unread)
    }
    if (request.model !== '') {
      this.check(exchange, request.model)
      return request
    }
    const given = request.constraints?.allowedInstanceIds
    const ids = this.#parts
      .fleet()
      .workers.filter(({ models }) => models[0] !== undefined && allowed.has(models[0].name))
      .map(({ instanceId }) => instanceId)
      .filter(id => given?.includes(id) !== false)
    if (ids.length === 0) this.check(exchange, '')
    return {
      ...request,
      constraints: { ...(request.constraints ?? NO_CONSTRAINTS), allowedInstanceIds: ids },
    }
  }
}

function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes)
}
