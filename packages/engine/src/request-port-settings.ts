/** Options of `homing engine` for requests over TCP; a part of `ENGINE_OPTIONS`. */

import { tcpServerSettings } from '@homing/config'
import { TCP_LIMITS } from '@homing/transport'

export interface RequestPortSettings {
  /** Where requests are taken over TCP; 0: the system picks one. */
  readonly requestPort: number
  readonly tcpConnectionsMax: number
  readonly tcpStreamsMax: number
  readonly tcpFrameBytesMax: number
  readonly tcpBufferBytesMax: number
  readonly tcpIdleTimeoutMs: number
  readonly tcpConnectTimeoutMs: number
}

export const DEFAULT_REQUEST_PORT_SETTINGS: RequestPortSettings = {
  requestPort: 0,
  tcpConnectionsMax: TCP_LIMITS.connectionsMax,
  tcpStreamsMax: TCP_LIMITS.streamsMax,
  tcpFrameBytesMax: TCP_LIMITS.frameBytesMax,
  tcpBufferBytesMax: TCP_LIMITS.bufferBytesMax,
  tcpIdleTimeoutMs: TCP_LIMITS.idleMsMax,
  tcpConnectTimeoutMs: TCP_LIMITS.connectMsMax,
}

export const REQUEST_PORT_OPTIONS = [
  {
    key: 'requestPort',
    name: 'request-port',
    group: 'Addresses',
    kind: 'integer',
    default: 0,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, named in the ready lines',
    env: 'HOMING_ENGINE_REQUEST_PORT',
    help: 'With --request-plane tcp: port on which requests are taken.',
  },
  ...tcpServerSettings('Addresses', 'HOMING_ENGINE'),
] as const
