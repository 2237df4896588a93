/** Settings of a simulated engine whose events and requests go over a broker; a part of `EngineSettings`. */

import { streamSettings } from '@homing/config'

export interface BrokerSettings {
  /** 'host:port' of the servers of the NATS broker that it publishes to; none: it publishes on the ports. */
  readonly nats: readonly string[]
  /** Subject there; rank r publishes under SUBJECT.r. '': after host and port. */
  readonly natsSubject: string
  /** It publishes into a stream there, too: of this namespace, and made with these limits. */
  readonly durableKvEvents: boolean
  readonly streamNamespace: string
  readonly streamRetentionMs: number
  readonly streamBytesMax: number
  /** Namespace under which the program registers it with routers, at that broker; '': it does not. */
  readonly register: string
  /** Whether requests are served at that broker, too, or over TCP at `requestPort`. */
  readonly requestPlane: 'http' | 'nats' | 'tcp'
}

export const DEFAULT_BROKER_SETTINGS: BrokerSettings = {
  nats: [],
  natsSubject: '',
  durableKvEvents: false,
  streamNamespace: streamSettings.namespace.default,
  streamRetentionMs: streamSettings.retentionMs.default,
  streamBytesMax: streamSettings.bytesMax.default,
  register: '',
  requestPlane: 'http',
}

/** Of the command line; a part of `ENGINE_OPTIONS`. */
export const BROKER_OPTIONS = [
  {
    key: 'nats',
    name: 'nats',
    group: 'KV events',
    kind: 'list',
    separator: 'comma or space',
    placeholder: 'HOST:PORT',
    unsetMeans: 'events are published on the ports',
    env: 'HOMING_ENGINE_NATS',
    help: 'Server of a NATS broker, where the events are published instead. The engine says so where routers ask for its event sources.',
  },
  {
    key: 'natsSubject',
    name: 'nats-subject',
    group: 'KV events',
    kind: 'text',
    default: '',
    placeholder: 'SUBJECT',
    env: 'HOMING_ENGINE_NATS_SUBJECT',
    help: 'With --nats: subject of the events; rank r uses SUBJECT.r. Empty: homing.kv.HOST_PORT.',
  },
  {
    ...streamSettings.durableKvEvents,
    group: 'KV events',
    env: 'HOMING_ENGINE_DURABLE_KV_EVENTS',
    envAliases: [{ name: 'DYN_DURABLE_KV_EVENTS' }],
    help: 'With --nats: publish the events once more into a stream at the broker, which keeps them for routers that have the option, too.',
  },
  {
    ...streamSettings.namespace,
    group: 'KV events',
    env: 'HOMING_ENGINE_NAMESPACE',
    envAliases: [{ name: 'DYN_NAMESPACE' }],
  },
  { ...streamSettings.retentionMs, group: 'KV events', env: 'HOMING_ENGINE_KV_EVENTS_RETENTION' },
  { ...streamSettings.bytesMax, group: 'KV events', env: 'HOMING_ENGINE_KV_EVENTS_BYTES' },
  {
    key: 'register',
    name: 'register',
    group: 'KV events',
    kind: 'text',
    default: '',
    placeholder: 'NAME',
    env: 'HOMING_ENGINE_REGISTER',
    help: 'With --nats: register with all routers that have this name as their --worker-namespace. Empty: routers are told of it in another way.',
  },
  {
    key: 'requestPlane',
    name: 'request-plane',
    group: 'KV events',
    kind: 'choice',
    choices: ['http', 'nats', 'tcp'],
    default: 'http',
    env: 'HOMING_ENGINE_REQUEST_PLANE',
    help: 'How routers send requests; they need the same --request-plane. nats: over the broker, with --register. tcp: over one connection of each router to --request-port; without --register they are told of it by requests=tcp://HOST:PORT in the URL of the worker.',
  },
] as const
