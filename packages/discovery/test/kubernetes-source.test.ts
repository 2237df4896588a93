/** The Kubernetes source against an API server that speaks the real wire. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { NO_OPENSSL, selfSigned } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { ApiServer } from './api-server.ts'
import { podObject, sliceObject, type TestPod } from './objects.ts'
import { accessTo, kubernetes } from './world.ts'

const A: TestPod = { name: 'a', address: '10.0.0.1' }
const B: TestPod = { name: 'b', address: '10.0.0.2' }

async function serverFor(t: Test, options = {}): Promise<ApiServer> {
  const server = await ApiServer.start(options)
  t.teardown(() => server.down())
  return server
}

function put(server: ApiServer, ...pods: readonly TestPod[]): void {
  for (const pod of pods) server.put('pods', podObject(pod))
  server.put('endpointslices', sliceObject('vllm', pods))
}

t.test('pods come, lose their readiness, terminate and go', async t => {
  const server = await serverFor(t)
  put(server, A)
  server.put('endpointslices', sliceObject('another', [{ name: 'z', address: '10.0.0.9' }]))
  const listener = kubernetes(t, accessTo(server.url))
  await listener.says(['http://10.0.0.1:8000 ready'])
  put(server, A, B)
  await listener.says(['http://10.0.0.1:8000 ready', 'http://10.0.0.2:8000 ready'])
  put(server, { ...A, isReady: false }, B)
  await listener.says(['http://10.0.0.1:8000 unready', 'http://10.0.0.2:8000 ready'])
  put(server, A, { ...B, isReady: false, isServing: true, isTerminating: true })
  await listener.says(['http://10.0.0.1:8000 ready', 'http://10.0.0.2:8000 leaving'])
  put(server, A)
  await listener.says(['http://10.0.0.1:8000 ready'])
  server.delete('endpointslices', 'vllm-abc12')
  await listener.says([])
})

t.test('annotations are parameters of the worker, and a change of them is seen', async t => {
  const server = await serverFor(t)
  const pod = {
    ...A,
    annotations: { 'homing/role': 'prefill', 'homing/ranks': '2', 'homing/block-size': '16', other: 'x' },
  }
  put(server, pod)
  const listener = kubernetes(t, accessTo(server.url))
  await listener.says(['http://10.0.0.1:8000?role=prefill&ranks=2&block_size=16 ready'])
  server.put('pods', podObject({ ...A, annotations: { 'homing/port': '9000', 'homing/path': '/engines/a' } }))
  await listener.says(['http://10.0.0.1:9000/engines/a ready'])
  server.put('pods', podObject({ ...A, annotations: { 'homing/ignore': 'true' } }))
  await listener.says([])
  server.put('pods', podObject({ ...A, annotations: { 'homing/rolle': 'prefill' } }))
  await listener.until('the fault is there', () => listener.source.finding()?.faults.length === 1)
  t.match(listener.source.finding()!.faults[0]!.reason, /homing\/rolle; known ones are .*homing\/role/)
})

t.test('a pod whose annotations are not known yet is no worker yet', async t => {
  const server = await serverFor(t)
  server.put('endpointslices', sliceObject('vllm', [A]))
  const listener = kubernetes(t, accessTo(server.url))
  await listener.says([])
  server.put('pods', podObject({ ...A, uid: 'of the pod before it' }))
  server.put('pods', podObject({ ...A, annotations: { 'homing/role': 'decode' } }))
  await listener.says(['http://10.0.0.1:8000?role=decode ready'])
})

t.test('listings come in pages, and begin again where a page is forgotten', async t => {
  const server = await serverFor(t)
  server.pageMax = 3
  const pods = Array.from({ length: 10 }, (_, n): TestPod => ({ name: `p${n}`, address: `10.0.1.${n}` }))
  put(server, ...pods)
  const listener = kubernetes(t, accessTo(server.url))
  await listener.says(pods.map(({ address }) => `http://${address}:8000 ready`))
  t.ok(server.log.filter(line => line === 'list pods 200').length >= 4)
})

t.test('a forgotten version is listed anew, and nothing is missed meanwhile', async t => {
  for (const how of ['event', 'watch'] as const) {
    const server = await serverFor(t)
    put(server, A)
    const listener = kubernetes(t, accessTo(server.url))
    await listener.says(['http://10.0.0.1:8000 ready'])
    await listener.until('both are watched', () => server.watchCount === 2)
    if (how === 'event') {
      put(server, A, B)
      server.failWatches(410)
    } else {
      // The watches end, and changes happen that are forgotten before they are watched again.
      server.failsWith = 503
      server.cutWatches('end')
      put(server, B)
      server.delete('pods', 'a')
      server.compact()
      server.put('pods', podObject(A))
      server.failsWith = undefined
    }
    await listener.says(
      how === 'event'
        ? ['http://10.0.0.1:8000 ready', 'http://10.0.0.2:8000 ready']
        : ['http://10.0.0.2:8000 ready'],
    )
  }
})

t.test('bookmarks move the version on, so that a watch is not listed anew after a compaction', async t => {
  const server = await serverFor(t)
  put(server, A)
  const listener = kubernetes(t, accessTo(server.url))
  await listener.says(['http://10.0.0.1:8000 ready'])
  await listener.until('both are watched', () => server.watchCount === 2)
  // Versions of others, which these watches are told of by bookmarks alone.
  for (let n = 0; n < 10; n++)
    server.put('endpointslices', sliceObject('another', [B], { name: 'another-1' }))
  server.compact()
  server.bookmark()
  server.put('pods', podObject({ ...A, annotations: { 'homing/role': 'decode' } }))
  await listener.says(['http://10.0.0.1:8000?role=decode ready'])
  const listed = server.log.filter(line => line.startsWith('list')).length
  server.cutWatches('end')
  server.put('pods', podObject(A))
  await listener.says(['http://10.0.0.1:8000 ready'])
  t.equal(server.log.filter(line => line.startsWith('list')).length, listed, server.log.join('; '))
})

t.test('watches that break, behind half an event or at once, go on where they were', async t => {
  const server = await serverFor(t)
  server.pieceBytes = 7
  put(server, A)
  const listener = kubernetes(t, accessTo(server.url))
  await listener.says(['http://10.0.0.1:8000 ready'])
  for (const how of ['mid-line', 'reset', 'end', 'mid-line'] as const) {
    server.cutWatches(how)
    put(server, A, B)
    await listener.says(['http://10.0.0.1:8000 ready', 'http://10.0.0.2:8000 ready'])
    server.cutWatches(how)
    put(server, A)
    await listener.says(['http://10.0.0.1:8000 ready'])
  }
})

t.test('while the server is away the last finding stays, and it is said once', async t => {
  const server = await serverFor(t)
  put(server, A)
  const listener = kubernetes(t, accessTo(server.url))
  await listener.says(['http://10.0.0.1:8000 ready'])
  await server.down()
  await listener.until('it is noticed', () => listener.failures.length > 0)
  t.strictSame(listener.said, ['http://10.0.0.1:8000 ready'])
  put(server, B)
  await server.up()
  await listener.says(['http://10.0.0.2:8000 ready'])
  await listener.until('it is said', () => listener.recoveries > 0)
  server.failsWith = 500
  server.cutWatches('reset')
  await listener.until('the errors are noticed', () => listener.failures.some(text => text.includes('500')))
  t.match(listener.failures.at(-1), /it answers 500: etcdserver: request timed out/)
  server.failsWith = undefined
  put(server, A)
  await listener.says(['http://10.0.0.1:8000 ready'])
})

t.test('a token that is rotated is read anew; one that is wrong is said', async t => {
  const file = join(t.testdir({}), 'token')
  writeFileSync(file, 'first\n')
  const server = await serverFor(t, { token: 'first' })
  put(server, A)
  const listener = kubernetes(t, accessTo(server.url, { token: { file } }))
  await listener.says(['http://10.0.0.1:8000 ready'])
  writeFileSync(file, 'second\n')
  server.token = 'second'
  server.cutWatches('end')
  put(server, B)
  await listener.says(['http://10.0.0.2:8000 ready'])
  t.strictSame(listener.failures, [])
  // The mount is late: 401 until the file is there.
  server.token = 'third'
  server.cutWatches('end')
  put(server, A)
  await listener.until('it is refused', () => listener.failures.length > 0)
  t.match(listener.failures[0], /does not accept the router's token/)
  t.notMatch(listener.failures[0], /second|third/)
  writeFileSync(file, 'third\n')
  await listener.says(['http://10.0.0.1:8000 ready'])
})

t.test('without the right to read, it says which one is missing', async t => {
  const server = await serverFor(t, { namespace: 'another' })
  const listener = kubernetes(t, accessTo(server.url))
  await listener.until('it is said', () => listener.failures.length >= 2)
  t.match(listener.failures.toSorted()[0], /Role with get, list and watch for endpointslices/)
  t.equal(listener.said, undefined)
})

t.test('https is checked by the authority of the cluster', { skip: NO_OPENSSL }, async t => {
  const own = selfSigned(t.testdir({}), 'api')
  const [cert, key] = [own.certificate, own.key]
  const server = await serverFor(t, { tls: { cert, key } })
  put(server, A)
  const stranger = kubernetes(t, accessTo(server.url))
  await stranger.until('it is refused', () => stranger.failures.length > 0)
  t.match(stranger.failures[0], /self.signed|certificate/i)
  const listener = kubernetes(t, accessTo(server.url, { authorities: { text: cert } }))
  await listener.says(['http://10.0.0.1:8000 ready'])
})
