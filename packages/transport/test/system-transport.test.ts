import { systemClock } from '@homing/base'
import t from 'tap'
import { systemTransport } from '../src/index.ts'
import { testTransport } from './conformance.ts'

const silent = { warn() {} }

testTransport(t, t => {
  const transport = systemTransport({ clock: systemClock, log: silent })
  t.teardown(() => transport.close())
  return transport
})
