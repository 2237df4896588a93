/** The address by which others may reach this machine. */

import { isIP } from 'node:net'
import { networkInterfaces } from 'node:os'
import t from 'tap'
import { ownAddressTowards } from '../src/index.ts'

const others = Object.values(networkInterfaces())
  .flatMap(one => one ?? [])
  .filter(({ internal, address }) => !internal && !address.startsWith('fe80:'))

t.test('it is one of this machine, and no loopback where there is another', async t => {
  // TEST-NET-1 (RFC 5737) is nowhere, and has a route where there is a default one.
  for (const host of ['192.0.2.1', '127.0.0.1', '[2001:db8::1]', '[::1]', 'name.invalid'])
    for (const family of ['IPv4', 'IPv6'] as const) {
      const own = others.filter(one => one.family === family).map(({ address }) => address)
      const text = await ownAddressTowards(host, 2379, family)
      t.equal(text.startsWith('['), family === 'IPv6')
      const address = text.replace(/^\[|\]$/g, '')
      t.equal(isIP(address), family === 'IPv4' ? 4 : 6, `${host}: ${address}`)
      const isLoopback = address === '127.0.0.1' || address === '::1'
      t.ok(own.length === 0 ? isLoopback : own.includes(address), `${host}: ${address}`)
    }
})
