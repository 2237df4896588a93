/** Arguments of the replica bridge. */

import type { ActorRef } from '@homing/actor'
import type { QueueMessage } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import type { TrackerMessage } from '@homing/actors/tracker'
import { etcdServersOf, isEveryInterface, natsServersOf, type RouterSettings } from '@homing/config'
import type { AddressFamily } from '@homing/transport'

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
      /** Where they find each other; undefined: only the named ones are followed. */
      readonly meeting?: ReplicaMeeting | undefined
    }
  | {
      readonly kind: 'nats'
      /** 'host:port' each. */
      readonly servers: readonly string[]
      /** Only replicas of one group exchange their bookings. */
      readonly group: string
    }

/** Replicas of one group register at etcd where they are. */
export interface ReplicaMeeting {
  /** 'http://host:port' each. */
  readonly servers: readonly string[]
  readonly group: string
  /** Under which others reach this one; IPv6 in brackets. */
  readonly host: string
}

export type ReplicaSettings = Pick<
  RouterSettings,
  | 'replicaSync'
  | 'replicaEndpoint'
  | 'replicaHost'
  | 'replicas'
  | 'replicaGroup'
  | 'replicaExpiryMs'
  | 'natsServers'
  | 'discovery'
  | 'etcdServers'
>

export interface ReplicaParts extends Pick<ReplicaBridgeArgs, 'tracker' | 'router' | 'queue' | 'name'> {
  /** Of this machine, from which etcd is reached; see addressSought. */
  readonly ownAddress?: string | undefined
}

/**
 * The server of etcd, towards which the own address has to be known, and of which kind it must be; undefined:
 * the settings name the host.
 */
export function addressSought(
  settings: ReplicaSettings,
): { readonly server: URL; readonly family: AddressFamily } | undefined {
  const { replicaEndpoint, replicaHost } = settings
  if (!meetsAtEtcd(settings) || replicaHost !== undefined) return undefined
  const host = hostOf(replicaEndpoint!)
  if (!isEveryInterface(host)) return undefined
  const server = new URL(etcdServersOf(settings.etcdServers)[0]!)
  return { server, family: host.startsWith('[') ? 'IPv6' : 'IPv4' }
}

/** Undefined: the router runs alone, without replicas. */
export function replicaBridgeArgsFromSettings(
  settings: ReplicaSettings,
  { ownAddress, ...parts }: ReplicaParts,
): ReplicaBridgeArgs | undefined {
  if (!settings.replicaSync) return undefined
  return { ...parts, plane: replicaPlaneOf(settings, ownAddress), expiryMs: settings.replicaExpiryMs }
}

/** Sockets if the router is given some, else the broker. */
function replicaPlaneOf(settings: ReplicaSettings, ownAddress: string | undefined): ReplicaPlane {
  const { replicaEndpoint, replicaHost, replicas, replicaGroup: group } = settings
  if (replicaEndpoint === undefined)
    return { kind: 'nats', servers: natsServersOf(settings.natsServers), group }
  const host = replicaHost ?? ownAddress ?? hostOf(replicaEndpoint)
  const meeting = meetsAtEtcd(settings)
    ? { servers: etcdServersOf(settings.etcdServers), group, host }
    : undefined
  return { kind: 'zmq', endpoint: replicaEndpoint, others: replicas, meeting }
}

/** Not where the others are named: one that is named and found would be two. */
function meetsAtEtcd({ replicaSync, discovery, replicaEndpoint, replicas }: ReplicaSettings): boolean {
  return replicaSync && discovery === 'etcd' && replicaEndpoint !== undefined && replicas.length === 0
}

/** Of 'tcp://host:port'. */
function hostOf(endpoint: string): string {
  return endpoint.slice('tcp://'.length, endpoint.lastIndexOf(':'))
}
