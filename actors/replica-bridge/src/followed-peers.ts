/**
 * Followed peers: the replicas that a service hears, as its callers register and deregister them.
 *
 * Owns   the list of peers. The bridge is told each at once, and all again with `renew`: it may have begun
 *        anew.
 */

import type { ActorRef } from '@homing/actor'
import { type Log, toErrorRecord } from '@homing/base'
import { bodyFields, ServiceConflictError, ServiceFullError, ServiceNotFoundError } from '@homing/http'
import type { ReplicaBridgeMessage } from './messages.ts'

export interface FollowedPeersOptions {
  /** Undefined: the service is alone, and none can be registered. */
  readonly bridge: ActorRef<ReplicaBridgeMessage> | undefined
  /** Endpoints, from the start. */
  readonly peers: readonly string[]
  readonly log: Log
  /** Longest wait for the bridge, in milliseconds. */
  readonly askMsMax: number
}

export class FollowedPeers {
  readonly #options: FollowedPeersOptions
  readonly #endpoints: Set<string>

  constructor(options: FollowedPeersOptions) {
    this.#options = options
    this.#endpoints = new Set(options.peers)
  }

  get endpoints(): readonly string[] {
    return [...this.#endpoints]
  }

  /** Throws ServiceConflictError and ServiceFullError. */
  async follow(endpoint: string): Promise<void> {
    const { bridge, log, askMsMax } = this.#options
    const action = `register peer ${endpoint}`
    if (bridge === undefined) throw alone(action)
    const outcome = await bridge.ask({ type: 'follow', endpoint }, { timeout: askMsMax })
    if (outcome === 'itself') throw new ServiceConflictError(action, 'it is the endpoint of this service')
    if (outcome === 'full')
      throw new ServiceFullError(action, 'as many peers are followed as may be; deregister one that is gone')
    this.#endpoints.add(endpoint)
    log.info({ peer: endpoint }, 'peer registered')
  }

  /** Throws ServiceConflictError and ServiceNotFoundError. */
  async unfollow(endpoint: string): Promise<void> {
    const { bridge, log, askMsMax } = this.#options
    const action = `deregister peer ${endpoint}`
    if (bridge === undefined) throw alone(action)
    if (!this.#endpoints.delete(endpoint))
      throw new ServiceNotFoundError(
        action,
        'it is not registered; GET /replica_sync/peers lists those that are',
      )
    await bridge.ask({ type: 'unfollow', endpoint }, { timeout: askMsMax })
    log.info({ peer: endpoint }, 'peer deregistered')
  }

  renew(): void {
    const { bridge, log, askMsMax } = this.#options
    for (const endpoint of this.#endpoints)
      bridge?.ask({ type: 'follow', endpoint }, { timeout: askMsMax }).catch((error: unknown) => {
        log.warn({ peer: endpoint, error: toErrorRecord(error) }, 'a peer is not followed yet')
      })
  }
}

/** The endpoint of a peer, from the body of a request. Throws BadBodyError and MistypedBodyError. */
export function readPeer(body: Uint8Array): string {
  return bodyFields('read the peer', body).checked('endpoint', faultOfPeer)
}

/** Why a text is no endpoint of another service; undefined: it is. */
export function faultOfPeer(text: string): string | undefined {
  const port = Number(/^tcp:\/\/(?:\[[^\]]+\]|[^[\]:/\s*]+):(\d{1,5})$/.exec(text)?.[1])
  return port >= 1 && port <= 65_534 ? undefined : "is not 'tcp://HOST:PORT' with a port from 1 to 65534"
}

function alone(action: string): ServiceConflictError {
  return new ServiceConflictError(action, 'this service was started without --replica-endpoint')
}
