/** Arguments of the replica bridge. */

import type { ActorRef } from '@homing/actor'
import type { QueueMessage } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import type { TrackerMessage } from '@homing/actors/tracker'
import { natsServersOf, type RouterSettings } from '@homing/config'

export interface ReplicaBridgeArgs {
  readonly tracker: ActorRef<TrackerMessage>
  /** Is told which sessions others have bound. */
  readonly router: ActorRef<Extract<RouterMessage, { readonly type: 'boundElsewhere' }>>
  /** Is told what waits at others, and says what waits here. */
  readonly queue: ActorRef<Extract<QueueMessage, { readonly type: 'exchangeWaiting' }>>
  /** Over which it tells: sockets of its own and those of others, or a broker. */
  readonly plane: ReplicaPlane
  /** How long the bookings of a replica count that cannot be heard, in milliseconds. */
  readonly expiryMs: number
  /**
   * 16 hexadecimal digits that no other router has: it is the same one to others at a broker when it has been
   * restarted.
   */
  readonly name: string
}

export type ReplicaPlane =
  | {
      readonly kind: 'zmq'
      /** 'tcp://*:5800'; questions are answered on the port behind it. */
      readonly endpoint: string
      /** 'tcp://host:5800' of each other replica. */
      readonly others: readonly string[]
    }
  | {
      readonly kind: 'nats'
      /** 'host:port' each. */
      readonly servers: readonly string[]
      /** Replicas of one group tell each other. */
      readonly group: string
    }

export type ReplicaSettings = Pick<
  RouterSettings,
  'replicaSync' | 'replicaEndpoint' | 'replicas' | 'replicaGroup' | 'replicaExpiryMs' | 'natsServers'
>

/** Undefined: other routers are told nothing. */
export function replicaBridgeArgsFromSettings(
  settings: ReplicaSettings,
  parts: Pick<ReplicaBridgeArgs, 'tracker' | 'router' | 'queue' | 'name'>,
): ReplicaBridgeArgs | undefined {
  if (!settings.replicaSync) return undefined
  return { ...parts, plane: replicaPlaneOf(settings), expiryMs: settings.replicaExpiryMs }
}

/** Over sockets of its own where the router is given some, else over the broker. */
function replicaPlaneOf({
  replicaEndpoint,
  replicas,
  replicaGroup,
  natsServers,
}: ReplicaSettings): ReplicaPlane {
  return replicaEndpoint === undefined
    ? { kind: 'nats', servers: natsServersOf(natsServers), group: replicaGroup }
    : { kind: 'zmq', endpoint: replicaEndpoint, others: replicas }
}
