/** Settings of how workers are found. */

import { Resolver } from 'node:dns'
import t from 'tap'
import { etcdServersOf, parseSettings, routerCommand } from '../src/index.ts'

const fault = (server: string): string => {
  const argv = ['--discovery-backend', 'dns', '--dns-name', 'http://a:8000', '--dns-server', server]
  try {
    parseSettings(routerCommand, argv, {})
    return ''
  } catch (thrown) {
    return (thrown as Error).message
  }
}

t.test('a DNS server is an address that a resolver takes, and nothing else', async t => {
  for (const server of ['10.96.0.10', '127.0.0.1:5353', '::1', '[fd00::a]', '[fd00::a]:1', '1.2.3.4:65535']) {
    t.equal(fault(server), '', server)
    new Resolver().setServers([server])
  }
  for (const server of [
    '999.1.1.1',
    '1.2.3',
    '10:53',
    'a:b',
    ':::',
    '1.2.3.4:99999',
    '1.2.3.4:0',
    '1.2.3.4:',
    '[fd00::a]:65536',
    '[10.0.0.1]:53',
    '[fd00::g]',
    'fe80::1%eth0',
    'kube-dns',
  ])
    t.match(fault(server), /is no address of a DNS server, such as 10\.96\.0\.10 or/, server)
})

t.test('a server of etcd that names no port is at that of etcd', async t => {
  t.strictSame(etcdServersOf([]), ['http://127.0.0.1:2379'])
  t.strictSame(etcdServersOf(['http://etcd', 'https://[fd00::1]/', 'http://a:99/']), [
    'http://etcd:2379',
    'https://[fd00::1]:2379',
    'http://a:99',
  ])
})
