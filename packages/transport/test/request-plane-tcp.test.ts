/** HTTP exchanges over connections of many calls. */

import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { systemTransport, type Transport } from '../src/index.ts'
import { freePort, TcpProxy } from '../src/testing.ts'

import { testRequestPlane, type World } from './request-plane-world.ts'

async function openWorld(t: Test): Promise<World> {
  const port = await freePort()
  const proxy = await TcpProxy.start(() => `127.0.0.1:${port}`)
  t.teardown(() => proxy.stop())
  const transport = (): Transport => {
    const opened = systemTransport({ clock: systemClock, log: { warn() {} } })
    t.teardown(() => opened.close())
    return opened
  }
  return {
    endpoint: `tcp://${proxy.address}`,
    serveAt: `tcp://127.0.0.1:${port}`,
    client: transport,
    server: transport,
    down: async () => proxy.down(),
    up: async () => proxy.heal(),
    counts: client => client.tcp,
    nobody: /the connection to 127\.0\.0\.1:\d+ was closed|cannot connect/,
  }
}

t.test('over TCP', async t => testRequestPlane(t, openWorld))
