/** The address by which others may reach this machine. */

import { isIP } from 'node:net'
import { networkInterfaces } from 'node:os'
import t from 'tap'
import { ownAddressTowards } from '../src/index.ts'

const own = Object.values(networkInterfaces())
  .flatMap(one => one ?? [])
  .filter(({ internal }) => !internal)
  .map(({ address }) => address)

t.test('it is one of this machine, and no loopback where there is another', async t => {
  // TEST-NET-1 (RFC 5737) is nowhere, and has a route where there is a default one.
  for (const host of ['192.0.2.1', '127.0.0.1', '[::1]', 'name.invalid']) {
    const address = (await ownAddressTowards(host, 2379)).replace(/^\[|\]$/g, '')
    t.ok(isIP(address) > 0, `${host}: ${address}`)
    t.ok(own.includes(address) || (own.length === 0 && address === '127.0.0.1'), `${host}: ${address}`)
  }
})
