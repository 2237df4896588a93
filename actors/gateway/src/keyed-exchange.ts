/**
 * Keyed exchange: the request of a client that has shown its key. From here on nothing has the key: not the
 * engine, no log, no receipt. The name of the client is its tenant, whatever the client calls itself.
 */

import { ModelNotFoundError } from '@homing/placement'
import type { ClientLease } from '@homing/queue'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import { WrappedExchange } from './wrapped-exchange.ts'

/** Headers that may hold a key, and those that name a tenant. */
const LEFT_OUT: ReadonlySet<string> = new Set([
  'authorization',
  'x-api-key',
  'api-key',
  'x-homing-tenant',
  'x-tenant-id',
])

export class KeyedExchange extends WrappedExchange {
  readonly lease: ClientLease
  readonly #headers: HttpHeaders

  /** `lease` ends with the exchange, however that ends. */
  constructor(http: HttpExchange, lease: ClientLease) {
    super(http)
    this.lease = lease
    const headers: Record<string, string | readonly string[] | undefined> = {}
    for (const name in http.headers) if (!LEFT_OUT.has(name)) headers[name] = http.headers[name]
    headers['x-homing-tenant'] = lease.key.name
    this.#headers = headers
    http.onOver(() => lease.end())
  }

  override get headers(): HttpHeaders {
    return this.#headers
  }
}

/** Undefined: the router asks for no keys. */
export function leaseOf(http: HttpExchange): ClientLease | undefined {
  return http instanceof KeyedExchange ? http.lease : undefined
}

/**
 * Models that its client may use, as workers serve them; undefined: all. `served`: the model behind a name.
 */
export function modelsOf(
  http: HttpExchange,
  served: (name: string) => string,
): ReadonlySet<string> | undefined {
  const models = leaseOf(http)?.key.models
  return models && new Set(models.map(served))
}

/**
 * The same error for every model that a client may not use, and for those that do not exist: it names only
 * models of this client.
 */
export function hiddenModelError(http: HttpExchange, model: string): ModelNotFoundError {
  return new ModelNotFoundError(model, leaseOf(http)?.key.models ?? [])
}
