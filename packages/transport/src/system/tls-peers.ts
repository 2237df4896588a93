/**
 * TLS peers: hosts of https with authorities, a name or a client certificate of their own, as an API server
 * of Kubernetes has. They belong to a host and port; the path of an origin says nothing to TLS.
 *
 * A change counts for connections that are made after it; open ones go on.
 */

import type { buildConnector } from 'undici'
import { believedCertificates } from '../certificates.ts'
import type { PeerTls } from '../http-types.ts'
import { loadUndici } from './libraries.ts'

interface Peer {
  readonly tls: PeerTls
  /** Made at its first connection. */
  connector: buildConnector.connector | undefined
}

export class TlsPeers {
  /** By host and port, as undici names them. */
  readonly #peers = new Map<string, Peer>()

  set(origin: string, tls: PeerTls | undefined): void {
    const { host } = new URL(origin)
    if (tls === undefined) this.#peers.delete(host)
    else if (this.#peers.get(host)?.tls !== tls) this.#peers.set(host, { tls, connector: undefined })
  }

  /** Undefined: it is a host as every other. */
  connectorTo(
    host: string | undefined,
    timeout: number,
    trusted: () => string,
  ): buildConnector.connector | undefined {
    const peer = host === undefined ? undefined : this.#peers.get(host)
    if (peer === undefined) return undefined
    const { authorities, serverName, identity } = peer.tls
    peer.connector ??= loadUndici().buildConnector({
      timeout,
      allowH2: false,
      ca: authorities ?? believedCertificates(trusted()),
      ...(serverName === undefined ? {} : { servername: serverName }),
      ...(identity === undefined ? {} : { cert: identity.certificate, key: identity.key }),
    })
    return peer.connector
  }
}
