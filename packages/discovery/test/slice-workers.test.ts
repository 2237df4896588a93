/** Slices and pods to workers, and what strangers may write into both. */

import assert from 'node:assert/strict'
import {
  readApiList,
  readApiWatchLine,
  readEndpointSlice,
  readWorkerNotes,
  sliceWorkers,
} from '@homing/discovery'
import fc from 'fast-check'
import t from 'tap'
import { podObject, sliceObject, type TestPod } from './objects.ts'
import { saidBy } from './world.ts'

const A: TestPod = { name: 'a', address: '10.0.0.1' }

function made(slices: readonly object[], pods: readonly TestPod[], port?: string) {
  const notes = new Map(pods.map(pod => [pod.name, readWorkerNotes(podObject(pod) as never)!]))
  return sliceWorkers(
    slices.map(slice => readEndpointSlice(slice as never)!),
    notes,
    { port },
  )
}

t.test('a pod in two slices is one worker: the one that is ready, at IPv4', async t => {
  const old = sliceObject('vllm', [{ ...A, isReady: false }], { name: 'old' })
  const now = sliceObject('vllm', [A], { name: 'now' })
  const six = sliceObject('vllm', [{ ...A, address: 'fd00::1' }], { name: 'six', addressType: 'IPv6' })
  for (const slices of [
    [old, now, six],
    [six, now, old],
    [now, six, old],
  ])
    t.strictSame(saidBy(made(slices, [A])), ['http://10.0.0.1:8000 ready'])
  t.strictSame(saidBy(made([six], [A])), ['http://[fd00::1]:8000 ready'])
})

t.test('the port is the one that is named, or http, or the only one', async t => {
  const two = sliceObject('vllm', [A], {
    ports: [
      { name: 'metrics', port: 9 },
      { name: 'http', port: 8001 },
    ],
  })
  t.strictSame(saidBy(made([two], [A])), ['http://10.0.0.1:8001 ready'])
  t.strictSame(saidBy(made([two], [A], 'metrics')), ['http://10.0.0.1:9 ready'])
  t.strictSame(saidBy(made([two], [A], '8123')), ['http://10.0.0.1:8123 ready'])
  const others = sliceObject('vllm', [A], {
    ports: [
      { name: 'a', port: 1 },
      { name: 'b', port: 2 },
    ],
  })
  t.match(made([others], [A]).faults[0], {
    what: 'pod a',
    reason: 'Service vllm has the ports a (1), b (2): name one with --kubernetes-port, or call it http',
  })
  t.match(made([others], [A], 'http').faults[0]!.reason, 'Service vllm has no port http; it has a (1), b (2)')
})

t.test('conditions that are missing are those that Kubernetes says', async t => {
  const slice = {
    addressType: 'IPv4',
    metadata: { name: 's' },
    endpoints: [{ addresses: ['10.0.0.5'] }],
    ports: [{ port: 80 }],
  }
  t.strictSame(saidBy(made([slice], [])), ['http://10.0.0.5:80 ready'])
})

t.test('readers take anything, and give what is of their form', async t => {
  const property = fc.property(fc.json({ maxDepth: 6 }), fc.anything(), (text, value) => {
    const event = readApiWatchLine(text)
    assert.ok(['changed', 'gone', 'bookmark', 'error', 'unknown'].includes(event.type))
    readApiList(text)
    const object = { addressType: 'IPv4', metadata: value, endpoints: value, ports: [value] } as never
    for (const { endpoints, ports } of [readEndpointSlice(object)!]) {
      for (const { address } of endpoints) assert.equal(typeof address, 'string')
      for (const { port } of ports) assert.ok(Number.isInteger(port))
    }
    readWorkerNotes(object)
  })
  t.doesNotThrow(() => fc.assert(property))
})
