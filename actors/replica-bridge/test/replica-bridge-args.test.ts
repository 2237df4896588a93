/** Which way to the other replicas the settings of a router mean. */

import { parseSettings, routerCommand } from '@homing/config'
import t from 'tap'
import { addressSought, replicaBridgeArgsFromSettings } from '../src/index.ts'

const ETCD = ['--discovery-backend', 'etcd', '--etcd', 'http://10.0.0.7:2379/', '--router-replica-sync']
const ENDPOINT = ['--router-replica-endpoint', 'tcp://*:5800']
const parts = { tracker: undefined as never, name: 'a'.repeat(16) }

const settingsOf = (...argv: readonly string[]) => parseSettings(routerCommand, argv, {}).settings
const planeOf = (argv: readonly string[], ownAddress?: string) =>
  replicaBridgeArgsFromSettings(settingsOf(...argv), { ...parts, ownAddress })?.plane

t.test('routers meet at etcd where it is the discovery and none is named', async t => {
  const meeting = { servers: ['http://10.0.0.7:2379'], group: 'default', host: '10.0.0.2' }
  t.match(planeOf([...ETCD, ...ENDPOINT], '10.0.0.2'), { kind: 'zmq', endpoint: 'tcp://*:5800', meeting })
  t.match(planeOf([...ETCD, '--router-replica-endpoint', 'tcp://10.0.0.2:5800']), { meeting })
  t.match(planeOf([...ETCD, ...ENDPOINT, '--router-replica-host', 'router-a'], '10.0.0.2'), {
    meeting: { host: 'router-a' },
  })
  const named = ['--router-replica-peer', 'tcp://10.0.0.3:5800']
  t.equal((planeOf([...ETCD, ...ENDPOINT, ...named]) as { meeting?: unknown }).meeting, undefined)
  t.match(planeOf(ETCD), { kind: 'nats' }, 'without an endpoint of their own they tell each other over NATS')
  t.equal(planeOf(ETCD.slice(0, -1)), undefined)
})

t.test('the own address is sought only where no setting names one', async t => {
  const sought = (...argv: readonly string[]) => {
    const found = addressSought(settingsOf(...argv))
    return found && `${found.server.host} ${found.family}`
  }
  t.equal(sought(...ETCD, ...ENDPOINT), '10.0.0.7:2379 IPv4')
  t.equal(sought(...ETCD, '--router-replica-endpoint', 'tcp://0.0.0.0:5800'), '10.0.0.7:2379 IPv4')
  t.equal(sought(...ETCD, '--router-replica-endpoint', 'tcp://[::]:5800'), '10.0.0.7:2379 IPv6')
  t.equal(sought(...ETCD, '--router-replica-endpoint', 'tcp://10.0.0.2:5800'), undefined)
  t.equal(sought(...ETCD, ...ENDPOINT, '--router-replica-host', '10.0.0.2'), undefined)
  t.equal(sought(...ETCD), undefined)
  t.equal(sought('--router-replica-sync', ...ENDPOINT), undefined)
})

t.test('a host of replicas that has no effect, or is none, is refused', async t => {
  const host = (name: string) => ['--router-replica-host', name]
  for (const name of ['*', '0.0.0.0', '[::]', 'a:1', 'tcp://a', 'a b'])
    t.throws(() => settingsOf(...ETCD, ...ENDPOINT, ...host(name)), /is no host of this machine/, name)
  for (const name of ['router-a', '10.0.0.2', '[fd00::1]'])
    t.equal(settingsOf(...ETCD, ...ENDPOINT, ...host(name)).replicaHost, name)
  const idle = /--router-replica-host has no effect/
  t.throws(() => settingsOf(...ETCD, ...host('a')), idle)
  t.throws(() => settingsOf('--router-replica-sync', ...ENDPOINT, ...host('a')), idle)
  t.throws(
    () => settingsOf(...ETCD, ...ENDPOINT, ...host('a'), '--router-replica-peer', 'tcp://10.0.0.3:5800'),
    idle,
  )
})
