/**
 * The roles of this thread: on the main thread the libraries themselves, on any other through the host there.
 */

import { isMainThread } from 'node:worker_threads'
import type { Closable } from '../closable.ts'
import type { MessageTransport } from '../message-types.ts'
import { hostedMessages } from './client.ts'
import { installZmqHost } from './host.ts'
import type { ZmqEnvironment } from './library.ts'
import { mainMessages } from './main-messages.ts'

// Loading this package on the main thread is what makes it the host of all others.
if (isMainThread) installZmqHost()

/** The roles, and one `close` for all that was opened. */
export function threadMessages(
  environment: Pick<ZmqEnvironment, 'clock' | 'log'>,
): MessageTransport & Closable {
  return isMainThread ? mainMessages(environment) : hostedMessages(environment)
}
