/** Settings of every command that has a side of the TCP request plane. */

import { KIB, MIB, MINUTE_MS, SECOND_MS } from './units.ts'

const FRAME_BYTES = {
  key: 'tcpFrameBytesMax',
  name: 'max-tcp-frame-bytes',
  kind: 'size',
  default: MIB,
  // A frame has room for 64 KiB of headers, which may be twice as long as UTF-8, and for a path.
  min: 256 * KIB,
  max: 64 * MIB,
} as const

const STREAMS = {
  key: 'tcpStreamsMax',
  name: 'max-tcp-streams',
  kind: 'integer',
  default: 4096,
  min: 1,
  max: 1_000_000,
  unit: 'requests',
} as const

const BUFFER_BYTES = {
  key: 'tcpBufferBytesMax',
  name: 'max-tcp-buffer-bytes',
  kind: 'size',
  default: 16 * MIB,
  min: MIB,
  max: 1024 * MIB,
} as const

const IDLE = {
  key: 'tcpIdleTimeoutMs',
  name: 'tcp-idle-timeout',
  kind: 'duration',
  default: MINUTE_MS,
  min: SECOND_MS,
  max: 24 * 60 * MINUTE_MS,
} as const

const CONNECT = {
  key: 'tcpConnectTimeoutMs',
  name: 'tcp-connect-timeout',
  kind: 'duration',
  default: 2 * SECOND_MS,
  min: 1,
  max: MINUTE_MS,
} as const

const CONNECTIONS = {
  key: 'tcpConnectionsMax',
  name: 'max-tcp-connections',
  kind: 'integer',
  default: 1024,
  min: 1,
  max: 65_536,
  unit: 'connections',
} as const

/** Of a router, which calls. */
export const tcpClientSettings = [
  {
    ...FRAME_BYTES,
    group: 'Workers',
    help: 'With --request-plane tcp: longest frame that is read of a worker. A longer one ends its connection. Workers are told of it.',
  },
  {
    ...BUFFER_BYTES,
    group: 'Workers',
    help: 'With --request-plane tcp: most bytes that wait here for a worker that does not read. Past it its connection is cut, and its requests are placed again where that is possible.',
  },
  {
    ...IDLE,
    group: 'Workers',
    help: 'With --request-plane tcp: how long a connection to a worker is kept without a request; half of what the worker says, if that is shorter.',
  },
  {
    ...CONNECT,
    group: 'Workers',
    help: 'With --request-plane tcp: how long a connection to a worker may take to be made, and the worker to say which version of the request plane it has.',
  },
] as const

/** Of a worker, which serves. `prefix`: of its variables, such as 'HOMING_ENGINE'. */
export function tcpServerSettings<const Group extends string>(group: Group, prefix: string) {
  return [
    {
      ...CONNECTIONS,
      group,
      env: `${prefix}_MAX_TCP_CONNECTIONS`,
      help: 'With --request-plane tcp: most connections of routers at one time. A further one is closed at once.',
    },
    {
      ...STREAMS,
      group,
      env: `${prefix}_MAX_TCP_STREAMS`,
      help: 'With --request-plane tcp: most requests of one connection at one time. A further one is refused, and its router tries another worker.',
    },
    {
      ...FRAME_BYTES,
      group,
      env: `${prefix}_MAX_TCP_FRAME_BYTES`,
      help: 'With --request-plane tcp: longest frame that is read. A longer one ends its connection. Routers are told of it.',
    },
    {
      ...BUFFER_BYTES,
      group,
      env: `${prefix}_MAX_TCP_BUFFER_BYTES`,
      help: 'With --request-plane tcp: most bytes that wait here for a router that does not read. Past it its connection is cut.',
    },
    {
      ...IDLE,
      group,
      env: `${prefix}_TCP_IDLE_TIMEOUT`,
      help: 'With --request-plane tcp: how long a connection is kept without a request. Routers close theirs after half of it.',
    },
    {
      ...CONNECT,
      group,
      env: `${prefix}_TCP_CONNECT_TIMEOUT`,
      help: 'With --request-plane tcp: how long a new connection may take to say which version of the request plane it has.',
    },
  ] as const
}

export interface TcpSettings {
  readonly tcpFrameBytesMax: number
  readonly tcpBufferBytesMax: number
  readonly tcpIdleTimeoutMs: number
  readonly tcpConnectTimeoutMs: number
  readonly tcpStreamsMax?: number
  readonly tcpConnectionsMax?: number
}

/** As packages/transport has them. */
export function tcpLimitsOf(settings: TcpSettings) {
  return {
    frameBytesMax: settings.tcpFrameBytesMax,
    bufferBytesMax: settings.tcpBufferBytesMax,
    idleMsMax: settings.tcpIdleTimeoutMs,
    connectMsMax: settings.tcpConnectTimeoutMs,
    ...(settings.tcpStreamsMax === undefined ? {} : { streamsMax: settings.tcpStreamsMax }),
    ...(settings.tcpConnectionsMax === undefined ? {} : { connectionsMax: settings.tcpConnectionsMax }),
  }
}

/** The first of a router's settings that is given, as the operator writes it. */
export function tcpSettingGiven(
  isGiven: (key: (typeof tcpClientSettings)[number]['key']) => boolean,
): string | undefined {
  const found = tcpClientSettings.find(({ key }) => isGiven(key))
  return found && `--${found.name}`
}

const SERVER_SETTINGS = [CONNECTIONS, STREAMS, FRAME_BYTES, BUFFER_BYTES, IDLE, CONNECT] as const

/** The fault of a worker's settings that have no effect: without --request-plane tcp nothing listens. */
export function faultOfTcpServer(
  requestPlane: string,
  isGiven: (key: 'requestPort' | (typeof SERVER_SETTINGS)[number]['key']) => boolean,
): string | undefined {
  if (requestPlane === 'tcp') return undefined
  const found = [{ key: 'requestPort', name: 'request-port' } as const, ...SERVER_SETTINGS].find(({ key }) =>
    isGiven(key),
  )
  return found && `--${found.name} has no effect without --request-plane tcp: give it, or leave it out`
}
