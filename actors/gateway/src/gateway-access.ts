/** Gateway access: the files by which clients come in, its certificate and their keys, while it serves. */

import type { Clock, Log } from '@homing/base'
import { type FollowedFiles, followTls } from '@homing/http'
import type { TlsIdentity } from '@homing/transport'
import { ClientDoor } from './client-door.ts'
import type { GatewayArgs } from './gateway-args.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'

export interface GatewayAccessParts {
  readonly args: Pick<GatewayArgs, 'tls' | 'clientKeys' | 'own'>
  readonly clock: Clock
  readonly log: Log
  readonly metrics: GatewayMetrics
  /** Its listener is to go by this certificate. */
  readonly changed: (identity: TlsIdentity) => void
}

export class GatewayAccess {
  /** Undefined: plain HTTP. */
  readonly tls: FollowedFiles<TlsIdentity> | undefined
  /** Undefined: requests need no key. */
  readonly clients: ClientDoor | undefined

  readonly #clock: Clock

  constructor({ args, clock, log, metrics, changed }: GatewayAccessParts) {
    const { tls, clientKeys, own } = args
    this.#clock = clock
    // Of several gateways, which have the same files, the first one tells.
    const tells = (own?.row.index ?? 0) === 0
    const ofFiles = tells ? log : undefined
    this.tls = tls && followTls(tls, changed, ofFiles)
    this.clients =
      clientKeys &&
      new ClientDoor({
        args: clientKeys,
        threads: own?.count ?? 1,
        clock,
        log: ofFiles,
        refused: reason => metrics.keyRefused(reason),
      })
    metrics.addAccess(this, tells)
  }

  /** The files as they are now count. */
  async begin(): Promise<void> {
    await Promise.all([this.tls?.begin(this.#clock), this.clients?.file.begin(this.#clock)])
  }

  look(): void {
    void this.tls?.look()
    void this.clients?.file.look()
  }
}
