/** For tests and benches: TCP ports for servers that must be told theirs before they start. */

import { createServer } from 'node:net'
import process from 'node:process'

/**
 * Below the ports that systems give to those who dial or ask for any port: nobody takes one before its server
 * listens.
 */
const PORTS_FROM = 20_000
const PORTS_TO = 32_000
/** Processes that look at the same time begin at different ports. */
let nextPort = PORTS_FROM + ((process.pid * 89) % (PORTS_TO - PORTS_FROM))

/**
 * Ports that differ, in 20,000 … 31,999, on which nobody listens at any address; given once by a process
 * until all were given.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = []
  for (let tried = 0; ports.length < count; tried++) {
    if (tried === PORTS_TO - PORTS_FROM) throw new Error(`fewer than ${count} ports are free`)
    const port = nextPort
    nextPort = port + 1 < PORTS_TO ? port + 1 : PORTS_FROM
    if (await isFree(port)) ports.push(port)
  }
  return ports
}

/** One of `freePorts`. */
export async function freePort(): Promise<number> {
  const [port] = await freePorts(1)
  return port!
}

function isFree(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, () => server.close(() => resolve(true)))
  })
}
