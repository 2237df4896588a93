/**
 * Followed peers: the replicas that a service hears, as its callers register and deregister them.
 *
 * Owns   the list of peers. The bridge is told each change at once, and the whole list with `renew`: it may
 *        have begun anew.
 */

import type { ActorRef } from '@homing/actor'
import type { Log } from '@homing/base'
import { bodyFields, ServiceConflictError, ServiceFullError, ServiceNotFoundError } from '@homing/http'
import type { FollowOutcome, ReplicaBridgeMessage } from './messages.ts'

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
  /** What is being said to the bridge, one after the other: the list then has what was said last. */
  #saying: Promise<void> | undefined

  constructor(options: FollowedPeersOptions) {
    this.#options = options
    this.#endpoints = new Set(options.peers)
  }

  get endpoints(): readonly string[] {
    return [...this.#endpoints]
  }

  /** Throws ServiceConflictError and ServiceFullError. */
  follow(endpoint: string): Promise<void> {
    return this.#inTurn(() => this.#follow(endpoint))
  }

  async #follow(endpoint: string): Promise<void> {
    const { bridge, log, askMsMax } = this.#options
    const action = `register peer ${endpoint}`
    if (bridge === undefined) throw alone(action)
    const isNew = !this.#endpoints.has(endpoint)
    // Now, so that a `renew` before the answer does not take it back.
    this.#endpoints.add(endpoint)
    let outcome: FollowOutcome | undefined
    try {
      outcome = await bridge.ask({ type: 'follow', endpoint }, { timeout: askMsMax })
    } finally {
      if (outcome !== 'followed' && isNew) this.#endpoints.delete(endpoint)
    }
    if (outcome === 'itself') throw new ServiceConflictError(action, 'it is the endpoint of this service')
    if (outcome === 'full')
      throw new ServiceFullError(action, 'as many peers are followed as may be; deregister one that is gone')
    log.info({ peer: endpoint }, 'peer registered')
  }

  /** Throws ServiceConflictError and ServiceNotFoundError. */
  unfollow(endpoint: string): Promise<void> {
    return this.#inTurn(() => this.#unfollow(endpoint))
  }

  async #unfollow(endpoint: string): Promise<void> {
    const { bridge, log, askMsMax } = this.#options
    const action = `deregister peer ${endpoint}`
    if (bridge === undefined) throw alone(action)
    if (!this.#endpoints.delete(endpoint))
      throw new ServiceNotFoundError(
        action,
        'it is not registered; GET /replica_sync/peers lists those that are',
      )
    try {
      await bridge.ask({ type: 'unfollow', endpoint }, { timeout: askMsMax })
    } catch (thrown) {
      this.#endpoints.add(endpoint)
      throw thrown
    }
    log.info({ peer: endpoint }, 'peer deregistered')
  }

  #inTurn(say: () => Promise<void>): Promise<void> {
    const said = this.#saying === undefined ? say() : this.#saying.then(say)
    const ended = (): void => {
      if (this.#saying === settled) this.#saying = undefined
    }
    const settled = said.then(ended, ended)
    this.#saying = settled
    return said
  }

  renew(): void {
    // One that finds no room is told again with the next.
    this.#options.bridge?.tell({ type: 'followOnly', endpoints: this.endpoints })
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
