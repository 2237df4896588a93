/** The roles on the main thread: each endpoint by the library that its scheme names. */

import { isBrokerEndpoint } from '../endpoint.ts'
import type { MessageTransport } from '../message-types.ts'
import { brokerMessages } from '../nats/messages.ts'
import { OwnLives } from '../nats/own-lives.ts'
import { systemBrokers } from '../nats/system-broker.ts'
import type { ZmqEnvironment } from './library.ts'
import { type ZmqMessages, zmqMessages } from './messages.ts'

/** What a host needs of all roles. */
export type MainMessages = ZmqMessages & Pick<MessageTransport, 'present'>

const own = new OwnLives()

/** The roles, and one `close` for all that was opened. */
export function mainMessages(environment: ZmqEnvironment): MainMessages {
  const sockets = zmqMessages(environment)
  const broker = brokerMessages({ ...environment, openBroker: systemBrokers(environment.clock), own })
  return {
    subscribe: (options, handler) => of(options).subscribe(options, handler),
    publish: options => of(options).publish(options),
    dial: (options, onMessage, taken) => of(options).dial(options, onMessage, taken),
    // A broker does not report that a peer has left.
    serve: (options, onMessage, gone) =>
      isBrokerEndpoint(options.endpoint)
        ? broker.serve(options, onMessage)
        : sockets.serve(options, onMessage, gone),
    present: (options, handler) => broker.present(options, handler),
    close() {
      sockets.close()
      broker.close()
    },
  }

  function of({ endpoint }: { readonly endpoint: string }) {
    return isBrokerEndpoint(endpoint) ? broker : sockets
  }
}
