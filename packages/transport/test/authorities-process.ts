/**
 * A process that calls `https://127.0.0.1:PORT` and prints the status of the answer, or why there is none:
 * `authorities-process.ts PORT [as-on-node-20]`. The latter takes from Node what Node 20 does not have.
 */

import { syncBuiltinESMExports } from 'node:module'
import process from 'node:process'
import tls from 'node:tls'
import { systemClock } from '@homing/base'
import { systemTransport } from '../src/index.ts'
import { callInto } from './inbox.ts'

const [port, node] = process.argv.slice(2)
if (node === 'as-on-node-20') {
  Reflect.deleteProperty(tls, 'getCACertificates')
  syncBuiltinESMExports()
}
const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
const { inbox } = callInto(transport, {
  origin: `https://127.0.0.1:${port}`,
  method: 'GET',
  path: '/',
  headers: {},
})
const first = await inbox.next('an answer')
if (first.type === 'head') console.log(first.status)
else if (first.type === 'failed') console.log(first.error.message)
transport.close()
