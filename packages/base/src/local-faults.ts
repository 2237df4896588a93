/**
 * Local faults: this machine lacks a resource for a file, a thread or a connection. Such a fault says nothing
 * about the file or the peer.
 */

/** By the codes of its kernel: files of the process or the machine, memory of sockets, ports. */
const LOCAL_FAULTS: ReadonlySet<unknown> = new Set(['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM', 'EADDRNOTAVAIL'])

/**
 * For a host with several addresses: only if each of them failed this way. `localhost` has an IPv6 address
 * even on machines without IPv6.
 */
export function isLocalFault(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.every(isLocalFault)
  return error instanceof Error && LOCAL_FAULTS.has((error as NodeJS.ErrnoException).code)
}
