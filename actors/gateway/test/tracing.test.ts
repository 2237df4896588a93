/** Traces of a gateway that begins anew: a collector that says nothing holds nothing up. */

import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { start } from './gateway-world.ts'

const LOOKS_MAX = 100

t.test('a gateway that fails listens again before a silent collector is given up', async t => {
  const sockets: Socket[] = []
  const silent = createServer(socket => void sockets.push(socket.on('error', () => {}).resume()))
  silent.listen(0, '127.0.0.1')
  await once(silent, 'listening')
  t.teardown(() => {
    silent.close()
    for (const socket of sockets) socket.destroy()
  })
  const { port } = silent.address() as AddressInfo
  const tracing = {
    endpoint: `http://127.0.0.1:${port}`,
    sample: 1,
    context: 'link' as const,
    queueMax: 512,
  }
  const { ref, ask, system } = await start(t, { tracing })
  const health = async (): Promise<number | undefined> => (await ask('GET', '/health')).status
  // The packages are loaded in real time.
  while ((await health()) === undefined) await turn()
  await ask('POST', '/v1/completions', { body: '{"model":"nobody","prompt":"x"}' })
  const reported = once(silent, 'connection')
  ref.tell({ type: 'fleet', fleet: undefined as never })
  await system.settle()
  await reported
  let status: number | undefined
  for (let look = 0; look < LOOKS_MAX && status === undefined; look++) {
    await system.advance('10ms')
    for (let turns = 0; turns < 10; turns++) await turn()
    status = await health()
  }
  t.ok(status, 'within a second of the clock')
})
