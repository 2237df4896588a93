/** Arguments of the replica bridge. */

import type { ActorRef } from '@homing/actor'
import type { QueueMessage } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import type { TrackerMessage } from '@homing/actors/tracker'
import { natsServersOf, type RouterSettings } from '@homing/config'

export interface ReplicaBridgeArgs {
  readonly tracker: ActorRef<TrackerMessage>
  /** Gets the sessions that other replicas have bound; undefined: nothing binds sessions here. */
  readonly router?: ActorRef<Extract<RouterMessage, { readonly type: 'boundElsewhere' }>>
  /** Gets what waits at other replicas, and answers what waits here; undefined: nothing waits here. */
  readonly queue?: ActorRef<Extract<QueueMessage, { readonly type: 'exchangeWaiting' }>>
  /** The way to the other replicas: sockets, or a broker. */
  readonly plane: ReplicaPlane
  /** How long the bookings of a silent replica count, in milliseconds. */
  readonly expiryMs: number
  /**
   * 16 hexadecimal digits that no other router has. By them other replicas at a broker know it after a
   * restart.
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
      /** Only replicas of one group exchange their bookings. */
      readonly group: string
    }

export type ReplicaSettings = Pick<
  RouterSettings,
  'replicaSync' | 'replicaEndpoint' | 'replicas' | 'replicaGroup' | 'replicaExpiryMs' | 'natsServers'
>

/** Undefined: the router runs alone, without replicas. */
export function replicaBridgeArgsFromSettings(
  settings: ReplicaSettings,
  parts: Pick<ReplicaBridgeArgs, 'tracker' | 'router' | 'queue' | 'name'>,
): ReplicaBridgeArgs | undefined {
  if (!settings.replicaSync) return undefined
  return { ...parts, plane: replicaPlaneOf(settings), expiryMs: settings.replicaExpiryMs }
}

/** Sockets if the router is given some, else the broker. */
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
