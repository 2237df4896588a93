/** Several threads that listen on one port, each on a socket of its own; the system deals out connections. */

import process from 'node:process'

/** Of net.Server: `reusePort`, which older Nodes pass over in silence. */
const NODE_MIN = [22, 12] as const

/** For `listen`. Throws where this Node cannot. */
export function sharedPort(isShared = false): { readonly reusePort?: boolean } {
  if (!isShared) return {}
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major < NODE_MIN[0] || (major === NODE_MIN[0] && minor < NODE_MIN[1]))
    throw new Error(
      `threads cannot share a port on Node ${process.versions.node}: ${NODE_MIN.join('.')} or later is needed for it`,
    )
  return { reusePort: true }
}
