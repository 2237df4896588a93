/**
 * A process that connects and binds while it has 0, 1, … FREE_MAX file descriptors left, and after each hears
 * a message over the connection when it has enough again. Prints the codes of the refused binds.
 */

import { closeSync, openSync } from 'node:fs'
import { systemClock } from '@homing/base'
import { systemTransport } from '../src/index.ts'

/** More than both sockets take: two signalers, those of its monitor, the connection. */
const FREE_MAX = 24
const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
const taken: number[] = []

function takeAll(): void {
  try {
    for (;;) taken.push(openSync('/dev/null', 'r'))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EMFILE') throw error
  }
}

function giveBack(count: number): void {
  for (const file of taken.splice(0, count)) closeSync(file)
}

const endpoint = 'tcp://127.0.0.1:0'
const publisher = await transport.messages.publish({ endpoint })
const refused: unknown[] = []
for (let free = 0; free <= FREE_MAX; free++) {
  takeAll()
  giveBack(free)
  const heard = Promise.withResolvers<void>()
  const subscriber = transport.messages.subscribe(
    { endpoint: publisher.endpoint, topic: '' },
    { message: () => heard.resolve(), connected() {}, disconnected() {} },
  )
  await transport.messages.publish({ endpoint }).then(
    bound => bound.close(),
    error => refused.push(error.code),
  )
  giveBack(taken.length)
  const timer = setInterval(() => publisher.send([new Uint8Array(0)]), 5)
  await heard.promise
  clearInterval(timer)
  subscriber.close()
}
publisher.close()
await transport.close()
process.stdout.write(JSON.stringify([...new Set(refused)]))
