/** A picker with the options of deploy/kubernetes/overlays/picker, before pods that come and go. */

import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { parseSettings, pickerCommand } from '@homing/config'
import { AskingEnvoy, destinationIn, freePort } from '@homing/transport/testing'
import { startRouter } from 'homing'
import t from 'tap'
import { parseAllDocuments } from 'yaml'
import { ApiServer } from '../../packages/discovery/test/api-server.ts'
import { podObject, sliceObject, type TestPod } from '../../packages/discovery/test/objects.ts'
import { completion } from '../../packages/homing/test/picker-world.ts'

const OVERLAY = join(import.meta.dirname, '../../deploy/kubernetes/overlays/picker')
const MODEL = 'm'
const NOT_SERVING = 2
/** Long enough to be looked into on a busy machine. */
const DELAY_MS = 5000

function optionsOfOverlay(): readonly string[] {
  const documents = parseAllDocuments(readFileSync(join(OVERLAY, 'picker.yaml'), 'utf8'))
  const deployment = documents.map(one => one.toJS()).find(one => one.kind === 'Deployment')
  const [name, ...options] = deployment.spec.template.spec.containers[0].args as string[]
  t.equal(name, 'picker')
  return options
}

t.test('a new pod is chosen, one that ends is not; a picker that ends goes on for its delay', async t => {
  const port = await freePort()
  const api = await ApiServer.start()
  t.teardown(() => api.down())
  const pods = new Map<string, TestPod>()
  const write = (pod: TestPod): void => {
    pods.set(pod.name, pod)
    api.put('pods', podObject(pod))
    const labels = { 'homing/workers': 'true' }
    const ports = [{ name: 'http', port }]
    api.put('endpointslices', sliceObject('vllm', [...pods.values()], { labels, ports }))
  }
  const come = async (number: number): Promise<TestPod> => {
    const pod = { name: `vllm-${number}`, address: `127.0.9.${number}` }
    const engine = createServer((request, response) => {
      const isKnown = request.url === '/health' || request.url === '/v1/models'
      response.writeHead(isKnown ? 200 : 404, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ object: 'list', data: [{ id: MODEL, object: 'model' }] }))
    })
    await new Promise<void>(resolve => engine.listen(port, pod.address, resolve))
    t.teardown(() => {
      engine.close()
      engine.closeAllConnections()
    })
    write(pod)
    return pod
  }

  const config = join(t.testdir({}), 'kubeconfig')
  writeFileSync(
    config,
    JSON.stringify({
      'current-context': 'a',
      contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
      clusters: [{ name: 'a', cluster: { server: api.url } }],
      users: [{ name: 'a', user: {} }],
    }),
  )
  const free = ['--host=127.0.0.1', '--port=0', '--picker-port=0', '--picker-health-port=0']
  const { settings } = parseSettings(
    pickerCommand,
    [...optionsOfOverlay(), `--kubernetes-config=${config}`, ...free],
    {},
  )
  t.ok(settings.shutdownDelayMs > 0)
  const one = await come(1)
  const router = await startRouter({ ...settings, shutdownDelayMs: DELAY_MS, logLevel: 'error' })
  t.teardown(() => router.stop())
  const envoy = await AskingEnvoy.connect(router.picker!.port)
  t.teardown(() => envoy.close())
  const probe = await AskingEnvoy.connect(router.picker!.healthPort!, true)
  t.teardown(() => probe.close())

  let asked = 0
  /** All of the list; undefined: refused. */
  const choose = async (subset?: readonly string[]): Promise<readonly string[] | undefined> => {
    const body = completion(MODEL, `prompt ${asked++}`)
    const stream = envoy.ask({ body, ...(subset === undefined ? {} : { subset }) })
    const list = destinationIn(await stream.next())?.split(',')
    stream.cancel()
    return list
  }
  const until = async (isSo: () => Promise<boolean>): Promise<void> => {
    while (!(await isSo())) await new Promise(setImmediate)
  }
  const at = ({ address }: TestPod): string => `${address}:${port}`

  await until(async () => (await choose())?.[0] === at(one))
  const other = await come(2)
  await until(async () => (await choose([at(other)]))?.[0] === at(other))
  t.strictSame((await choose())!.toSorted(), [at(one), at(other)], 'one of them, and one to fall back to')

  write({ ...one, isReady: false, isServing: true, isTerminating: true })
  await until(async () => (await choose([at(one)])) === undefined)
  t.strictSame(await choose(), [at(other)])

  const isOver = router.stop()
  await until(async () => (await probe.check('readiness')) === NOT_SERVING)
  t.strictSame(await choose(), [at(other)], 'it says that it is not ready, and answers')
  await isOver
})

t.test('docs/endpoint-picker.md has the pool of the overlay', async t => {
  const page = readFileSync(join(OVERLAY, '../../../../docs/endpoint-picker.md'), 'utf8')
  t.ok(page.includes(`\`\`\`yaml\n${readFileSync(join(OVERLAY, 'inference-pool.yaml'), 'utf8')}\`\`\``))
})
