/**
 * Messages between a client on a thread and the host on the main thread, besides batches (see batch.ts).
 *
 * The client numbers its sockets. The host answers a command to bind with `bound` or `refused`, and a command
 * to connect not at all. When the port closes, all its sockets are closed.
 */

import type { MessagePort } from 'node:worker_threads'
import type { StreamOptions } from '../message-types.ts'

/** How a thread hands its port over, with `postMessageToThread`. */
export interface HandOver {
  readonly type: 'homing-transport-client'
  readonly port: MessagePort
}

export type HostCommand =
  | {
      readonly type: 'subscribe'
      readonly socket: number
      readonly endpoint: string
      readonly topic: string
      readonly stream: StreamOptions | undefined
    }
  | {
      readonly type: 'dial'
      readonly socket: number
      readonly endpoint: string
      readonly stream: StreamOptions | undefined
    }
  | {
      readonly type: 'publish' | 'serve'
      readonly socket: number
      readonly endpoint: string
      /** Undefined: as many as the library's roles hold. */
      readonly queuedMessagesMax: number | undefined
      readonly stream: StreamOptions | undefined
    }

export type ClientCommand =
  | { readonly type: 'bound'; readonly socket: number; readonly endpoint: string }
  | {
      readonly type: 'refused'
      readonly socket: number
      readonly reason: string
    }
  | { readonly type: 'warning'; readonly fields: Readonly<Record<string, unknown>>; readonly text: string }

export function isHandOver(value: unknown): value is HandOver {
  return (value as { readonly type?: unknown } | null)?.type === 'homing-transport-client'
}
