/** Whether a service could listen, before an actor is started that would have to be stopped again. */

import { fromErrorRecord, silentLog, systemClock, toErrorRecord } from '@homing/base'
import { systemTransport } from '@homing/transport'

/**
 * The ports of a router; of all but the first, what is rejected names the option. Resolves with the first,
 * which is a free one for 0.
 */
export async function checkPorts(settings: {
  readonly host: string
  readonly port: number
  readonly adminPort: number | undefined
  readonly metricsPort: number | undefined
}): Promise<number> {
  const { host, adminPort, metricsPort } = settings
  const port = await checkPort(settings)
  for (const [option, further] of [
    ['--admin-port', adminPort],
    ['--metrics-port', metricsPort],
  ] as const) {
    if (further === undefined) continue
    await checkPort({ host, port: further }).catch((thrown: unknown) => {
      const { details, ...record } = toErrorRecord(thrown)
      throw fromErrorRecord({ ...record, details: { ...details, option } })
    })
  }
  return port
}

/**
 * Listens for a moment. Rejects with ListenError when the address cannot be had: a free port (0) of a foreign
 * host neither. Resolves with the port.
 */
export async function checkPort({
  host,
  port,
}: {
  readonly host: string
  readonly port: number
}): Promise<number> {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  try {
    const listener = await transport.http.listen({ host, port }, exchange => {
      // A client that is quicker than the router: it is told to come back.
      exchange.writeHead(503, { 'retry-after': '1', 'content-length': '0' })
      exchange.end()
    })
    await listener.close(0)
    return listener.port
  } finally {
    transport.close()
  }
}
