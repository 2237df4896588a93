/** Bounds of the TCP request plane. */

export interface TcpLimits {
  /** Longest frame that is read, in bytes. */
  readonly frameBytesMax: number
  /** Calls of one connection at one time. */
  readonly streamsMax: number
  /**
   * Bytes that may wait in this process for a connection whose other side does not read; past it, it is cut.
   */
  readonly bufferBytesMax: number
  /** A connection without calls is closed after so long, in milliseconds. */
  readonly idleMsMax: number
  /** How long a connection may take to be made, and its other side to say what it is, in milliseconds. */
  readonly connectMsMax: number
  /** Of a server: connections at one time. */
  readonly connectionsMax: number
}

const KIB = 1024
const MIB = 1024 * KIB

export const TCP_LIMITS: TcpLimits = {
  frameBytesMax: MIB,
  streamsMax: 4096,
  bufferBytesMax: 16 * MIB,
  idleMsMax: 60_000,
  connectMsMax: 2000,
  connectionsMax: 1024,
}

/**
 * What settings may be. A frame has room for 64 KiB of headers, which may be twice as long as UTF-8, and
 * a path.
 */
export const TCP_LIMIT_RANGES: { readonly [Name in keyof TcpLimits]: readonly [number, number] } = {
  frameBytesMax: [256 * KIB, 64 * MIB],
  streamsMax: [1, 1_000_000],
  bufferBytesMax: [MIB, 1024 * MIB],
  idleMsMax: [1000, 86_400_000],
  connectMsMax: [1, 60_000],
  connectionsMax: [1, 65_536],
}
