/** Settings of `homing router`: other routers on the same workers. */

import type { SettingDescriptor } from '../descriptor.ts'
import { HOUR_MS, SECOND_MS } from '../units.ts'

export const replicaSettings = [
  {
    key: 'replicaSync',
    name: 'router-replica-sync',
    group: 'Replicas',
    kind: 'flag',
    default: false,
    envAliases: [{ name: 'DYN_ROUTER_REPLICA_SYNC' }],
    help: 'Tell other routers of the same workers what this one sends there, and count what they send. Over NATS (--nats) they find each other; over ZeroMQ give --router-replica-endpoint, and --router-replica-peer or --discovery-backend etcd.',
  },
  {
    key: 'replicaEndpoint',
    name: 'router-replica-endpoint',
    group: 'Replicas',
    kind: 'text',
    placeholder: 'ENDPOINT',
    default: undefined,
    unsetMeans: 'replicas tell each other over NATS',
    check: faultOfOwnEndpoint,
    help: 'Endpoint such as tcp://*:5800 on which other routers hear of the bookings of this one, without a broker; it answers their questions on the port behind it.',
  },
  {
    key: 'replicaHost',
    name: 'router-replica-host',
    group: 'Replicas',
    kind: 'text',
    placeholder: 'HOST',
    default: undefined,
    unsetMeans: 'that of --router-replica-endpoint, or the address from which this machine reaches etcd',
    check: text =>
      faultOfOther(`tcp://${text}:1`) === undefined && !isEveryInterface(text)
        ? undefined
        : 'is no host of this machine, such as 10.0.0.1, router-a or [fd00::1]',
    help: 'With --discovery-backend etcd: host under which other routers reach --router-replica-endpoint. This router registers it at etcd, and takes the others of its group from there, unless --router-replica-peer names them.',
  },
  {
    key: 'replicas',
    name: 'router-replica-peer',
    group: 'Replicas',
    kind: 'list',
    placeholder: 'ENDPOINT',
    separator: 'comma or space',
    unsetMeans: 'those that are found at the broker, or with --discovery-backend etcd at etcd',
    env: 'HOMING_ROUTER_REPLICA_PEERS',
    check: faultOfOther,
    help: 'Endpoint of another router, such as tcp://10.0.0.2:5800, as its --router-replica-endpoint says; give it once for each.',
  },
  {
    key: 'replicaGroup',
    name: 'router-replica-group',
    group: 'Replicas',
    kind: 'text',
    placeholder: 'NAME',
    default: 'default',
    check: faultOfGroup,
    help: 'Routers at one NATS broker, or at one etcd, that are to tell each other; those of other workers need another name.',
  },
  {
    key: 'replicaDelayMs',
    name: 'router-replica-delay',
    group: 'Replicas',
    kind: 'duration',
    default: 2,
    min: 0,
    max: SECOND_MS,
    help: 'What is booked after a pause is told at once; what follows is gathered for so long.',
  },
  {
    key: 'replicaExpiryMs',
    name: 'router-replica-expiry',
    group: 'Replicas',
    kind: 'duration',
    default: 3 * SECOND_MS,
    min: 100,
    max: HOUR_MS,
    help: 'How long the bookings of a router count that cannot be heard any more. One that ends in good order is forgotten at once.',
  },
] as const satisfies readonly SettingDescriptor[]

export function faultOfOwnEndpoint(text: string): string | undefined {
  const port = portOf(text)
  return port === undefined || port > 65_534 ? "is not 'tcp://*:PORT' with a port from 1 to 65534" : undefined
}

export function faultOfOther(text: string): string | undefined {
  const port = portOf(text)
  return port === undefined || port > 65_534 || text.includes('*')
    ? "is not 'tcp://HOST:PORT' of another one"
    : undefined
}

/** Whether a host of an endpoint is for binding only. */
export function isEveryInterface(host: string): boolean {
  return host === '*' || host === '0.0.0.0' || host === '[::]'
}

function faultOfGroup(text: string): string | undefined {
  return /^[A-Za-z0-9_-]{1,64}$/.test(text) ? undefined : "is not 1 to 64 letters, digits, '-' and '_'"
}

function portOf(text: string): number | undefined {
  const port = Number(/^tcp:\/\/(?:\[[^\]]+\]|[^[\]:/\s]+):(\d{1,5})$/.exec(text)?.[1])
  return port >= 1 ? port : undefined
}
