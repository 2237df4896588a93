/** Reset stream: empties what a namespace has at a broker, before anybody of this process follows it. */

import type { Clock } from '@homing/base'
import { StreamError } from '../errors.ts'
import type { BrokerLink, OpenBroker } from './broker.ts'
import { streamName } from './streams.ts'
import { systemBrokers } from './system-broker.ts'

const RESET_MS_MAX = 10_000

/** `servers`: 'host:port' each. False: there was nothing. Rejects with StreamError. */
export async function resetStream(
  servers: readonly string[],
  namespace: string,
  clock: Clock,
  openBroker: OpenBroker = systemBrokers(clock),
): Promise<boolean> {
  const what = `cannot reset ${streamName(namespace)} at ${servers.join(', ')}`
  const { promise: session, resolve, reject } = Promise.withResolvers<BrokerLink>()
  let failure = 'no connection'
  const leave = openBroker(servers).join({
    up: resolve,
    down: () => {},
    failed: reason => {
      failure = reason
    },
  })
  const timer = clock.after(RESET_MS_MAX, () => reject(new StreamError(what, failure)))
  try {
    const { streams } = await session
    if (streams === undefined) throw new StreamError(what, 'the broker keeps no streams')
    return await streams.reset(namespace)
  } finally {
    timer.cancel()
    leave()
  }
}
