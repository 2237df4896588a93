/** A thread that publishes at a broker: one message each time it is told, and a flood when it is told to. */

import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '@homing/base'
import { connect } from 'nats'
import { brokerMessages } from '../src/nats/messages.ts'
import { systemBrokers } from '../src/nats/system-broker.ts'

const { endpoint, server, flag, floodBytes } = workerData as {
  readonly endpoint: string
  readonly server: string
  /** Set to 1 and notified when the broker has read the flood. */
  readonly flag: Int32Array
  readonly floodBytes: number
}
const CHUNK_BYTES = 200_000
const messages = brokerMessages({
  clock: systemClock,
  log: { warn() {} },
  openBroker: systemBrokers(systemClock),
})
const publisher = await messages.publish({ endpoint })

async function flood(): Promise<void> {
  const connection = await connect({ servers: server })
  const subject = `${new URL(endpoint).pathname.slice(1)}.events`
  for (let sent = 0; sent < floodBytes; sent += CHUNK_BYTES) {
    connection.publish(subject, new Uint8Array(CHUNK_BYTES))
    await connection.flush()
  }
  await connection.close()
  Atomics.store(flag, 0, 1)
  Atomics.notify(flag, 0)
}

parentPort!.on('message', (told: string) => {
  if (told === 'flood') void flood()
  else publisher.send([Buffer.from(told)])
})
