/** A listener that an actor opens in its setup. */

import { SimulatedClock } from '@homing/base'
import { MemoryNetwork } from '@homing/transport'
import t from 'tap'
import { FrontDoor } from '../src/index.ts'

t.test('a port that is taken is told where it is asked for, and fails what needs it', async t => {
  const network = new MemoryNetwork({ clock: new SimulatedClock() })
  const options = { host: '10.0.0.1', port: 80 }
  const open = () =>
    FrontDoor.open(
      network.transport().http,
      options,
      () => {},
      () => {},
    )
  const first = await open()
  t.strictSame(first.address, options)
  first.assertOpen()
  const second = await open()
  t.match(second.address, { code: 'HOMING_TRANSPORT_LISTEN' })
  t.throws(() => second.assertOpen(), { code: 'HOMING_TRANSPORT_LISTEN' })
  await second.close(0)
  await first.close(0)
  const third = await open()
  t.strictSame(third.address, options)
})
