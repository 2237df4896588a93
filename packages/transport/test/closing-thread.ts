/** A thread that opens sockets, closes them once they are connected, and has nothing left to do. */

import { systemClock } from '@homing/base'
import { threadMessages } from '../src/zmq/roles.ts'

const messages = threadMessages({ clock: systemClock, log: { warn() {} } })
const publisher = await messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
const subscriber = messages.subscribe(
  { endpoint: publisher.endpoint, topic: '' },
  {
    message() {},
    connected() {
      publisher.close()
      subscriber.close()
    },
    disconnected() {},
  },
)
