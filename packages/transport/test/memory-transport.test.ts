import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { MemoryNetwork, type Transport } from '../src/index.ts'
import { testTransport } from './conformance.ts'

const network = new MemoryNetwork({ clock: systemClock })

testTransport(t, (t: Test): Transport => {
  const transport = network.transport()
  t.teardown(() => transport.close())
  return transport
})
