/** How an actor gets the transport of its thread: `context.use(transportCapability)`. */

import type { Capability } from '@homing/actor'
import { systemTransport } from './system/system-transport.ts'
import type { Transport } from './transport.ts'

export const transportCapability: Capability<Transport> = {
  name: 'transport',
  create: ({ clock, log }) => systemTransport({ clock, log }),
  async dispose(transport) {
    await transport.goodByesSaid?.()
    transport.close()
  },
}
