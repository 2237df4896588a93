/** Where Envoys ask a gateway for workers, and what they are told. */

export interface PickerArgs {
  /** 0 picks a free one. */
  readonly port: number
  /** Of the health service without TLS; undefined: it is on `port` only. */
  readonly healthPort: number | undefined
  /** `files`: the gateway's own certificate. */
  readonly tls: 'self-signed' | 'files' | 'off'
  /** Other workers that Envoy is told of, for a first one that it cannot reach. */
  readonly fallbacks: number
  /** Obeys and sets the headers of the extension's conformance tests. */
  readonly isConformance: boolean
}

export interface PickerAddress {
  readonly port: number
  readonly healthPort: number | undefined
}
