/** Worker spec: one worker as the operator gives it. Its form as a URL is in worker-url.ts. */

import type { Handover, WorkerRole } from './leg-names.ts'

/** One worker as given on the command line: URL and the parameters of its query. */
export interface WorkerSpec {
  readonly id: string
  readonly instanceId: number
  /** Scheme, host and port, and the path under which the engine's routes are, if it has one. */
  readonly origin: string
  readonly model: string | undefined
  readonly blockSizeTokens: number | undefined
  readonly ranks: number | undefined
  /** Host of its event and replay sockets, as written in an endpoint; undefined: the host of the origin. */
  readonly eventsHost?: string | undefined
  readonly eventsPort: number | undefined
  readonly replayPort: number | undefined
  readonly topic: string | undefined
  /**
   * Subject under which its events are published at the broker; rank r publishes under this and .r.
   * Undefined: none was named.
   */
  readonly natsSubject?: string | undefined
  /** Subject under which it takes requests at the broker; undefined: nowhere. */
  readonly requestSubject?: string | undefined
  /** 'tcp://host:port', where it takes requests over connections of many; undefined: nowhere. */
  readonly requestEndpoint?: string | undefined
  readonly maxBatchedTokens: number | undefined
  readonly kvBlocks: number | undefined
  readonly taints: readonly string[]
  /** Undefined, as the three after it: as the probe finds it. */
  readonly role?: WorkerRole | undefined
  readonly handover?: Handover | undefined
  /** Where the decode leg meets its prefill leg, of engines that are found so. */
  readonly bootstrapHost?: string | undefined
  readonly bootstrapPort?: number | undefined
  /** Source of the engine's API key; undefined: the common source of all engines, if there is one. */
  readonly key?: KeySource | undefined
}

/** Never the key itself. `within`: a directory in which the file must be, links followed. */
export type KeySource = { readonly env: string } | { readonly file: string; readonly within?: string }

/** The host of the event and replay sockets of a worker, as it stands in an endpoint. */
export function eventsHostOf({ eventsHost, origin }: Pick<WorkerSpec, 'eventsHost' | 'origin'>): string {
  return eventsHost ?? hostOf(origin)
}

/** The host of an origin, as it stands in an endpoint: IPv6 in brackets. */
export function hostOf(origin: string): string {
  return new URL(origin).hostname
}
