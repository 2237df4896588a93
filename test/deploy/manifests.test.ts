/**
 * deploy/kubernetes and deploy/helm: they pass the schemas of Kubernetes, and what they say fits the router:
 * its options, routes, rights and times. Helm itself renders the chart; manifests.ts puts the others together
 * where no kubectl can be had, and kubectl.test.ts compares it with kustomize.
 */

import { spawnSync } from 'node:child_process'
import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { parseSettings, pickerCommand, type RouterSettings, routerCommand } from '@homing/config'
import { readEndpointSlice, readWorkerNotes, sliceWorkers } from '@homing/discovery'
import { parseWorkerSpec } from '@homing/fleet'
import { isInstalled } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { sliceObject } from '../../packages/discovery/test/objects.ts'
import {
  found,
  helmLibrary,
  plainPython,
  runPython,
  skipOf,
  validatingPython,
} from '../python/interpreter.ts'
import { HelmCluster, type Manifest } from './helm-cluster.ts'
import { DEPLOY, kustomized, manifestsIn, namespaceOf, oneOf } from './manifests.ts'
import { type Asking, mayReach } from './network-policies.ts'
import { fencesOf, wordsOf } from './page-fences.ts'

const OVERLAYS = ['aggregated', 'disaggregated', 'sglang'] as const
const CHART = join(DEPLOY, 'helm/homing')
/** Oldest and youngest Kubernetes whose schemas are asked. */
const VERSIONS = ['1.25', '1.30', '1.33']
const RELAY_MS_TO_SPARE = 10_000
/** Where the engines of the manifests publish their events, and repeat them. */
const EVENTS_PORTS = [5557, 6557]

const overlay = (name: string): readonly Manifest[] => kustomized(join(DEPLOY, 'kubernetes/overlays', name))

/** Kinds of which those schemas have none. */
const CUSTOM = new Set(['ServiceMonitor', 'InferencePool', 'HTTPRoute'])

/** Fails with every fault that a schema finds. */
async function passSchemas(t: Test, manifests: readonly Manifest[]): Promise<void> {
  const file = join(t.testdir({}), 'manifests.json')
  writeFileSync(file, JSON.stringify(manifests.filter(({ kind }) => !CUSTOM.has(kind))))
  const script = `
import json, sys, kubernetes_validate
faults = []
for manifest in json.load(open(sys.argv[1])):
    for version in sys.argv[2:]:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            faults.append(f"{manifest['kind']} {manifest['metadata']['name']} in {version}: {error.message}")
print(json.dumps(faults))
`
  const { stdout, stderr, exitCode } = await runPython(t, found(validatingPython()), [
    '-c',
    script,
    file,
    ...VERSIONS,
  ])
  t.equal(exitCode, 0, stderr)
  t.strictSame(JSON.parse(stdout), [])
}

function routerOf(manifests: readonly Manifest[]): Manifest {
  return oneOf(manifests, 'Deployment', one => containerOf(one).name === 'homing')
}

// biome-ignore lint/suspicious/noExplicitAny: manifests have many forms
const containerOf = (deployment: Manifest): any => deployment.spec.template.spec.containers[0]

const settingsOf = (deployment: Manifest): RouterSettings =>
  parseSettings(routerCommand, containerOf(deployment).args as readonly string[], {}).settings

/** As Kubernetes puts them into each pod of the namespace that allows it. Headless ones make none. */
function serviceVariables(manifests: readonly Manifest[]): Record<string, string> {
  const env: Record<string, string> = {}
  for (const { kind, metadata, spec } of manifests) {
    if (kind !== 'Service' || spec.clusterIP === 'None') continue
    const name = metadata.name.toUpperCase().replaceAll('-', '_')
    env[`${name}_SERVICE_HOST`] = '10.96.0.7'
    env[`${name}_SERVICE_PORT`] = String(spec.ports[0].port)
    env[`${name}_PORT`] = `tcp://10.96.0.7:${spec.ports[0].port}`
    for (const { name: port, port: number } of spec.ports) {
      env[`${name}_SERVICE_PORT_${port.toUpperCase().replaceAll('-', '_')}`] = String(number)
      const link = `${name}_PORT_${number}_TCP`
      env[link] = `tcp://10.96.0.7:${number}`
      env[`${link}_PROTO`] = 'tcp'
      env[`${link}_PORT`] = String(number)
      env[`${link}_ADDR`] = '10.96.0.7'
    }
  }
  return env
}

/** The router starts as its manifest says, whatever variables its own Services make. */
function bearServices(t: Test, manifests: readonly Manifest[]): void {
  const router = routerOf(manifests)
  t.equal(router.spec.template.spec.enableServiceLinks, false)
  const env = serviceVariables(manifests)
  t.ok(env.HOMING_PORT?.startsWith('tcp://'), 'a Service is named homing')
  const { settings, warnings } = parseSettings(routerCommand, containerOf(router).args, env)
  t.strictSame(settings, settingsOf(router))
  t.match(warnings, [/^HOMING_PORT is ignored: it is the address of a Service/])
}

/** The last value of each instruction. */
function containerfile(): Readonly<Record<string, string>> {
  const text = readFileSync(join(DEPLOY, '../Containerfile'), 'utf8')
  return Object.fromEntries(
    Array.from(text.matchAll(/^([A-Z]+) (.*)$/gm), ([, name, value]) => [name, value]),
  )
}

const enginesOf = (manifests: readonly Manifest[]): readonly Manifest[] =>
  manifests.filter(one => one.kind === 'Deployment' && containerOf(one).name !== 'homing')

for (const name of OVERLAYS) {
  t.test(
    `${name}: the manifests pass the schemas of Kubernetes`,
    { skip: skipOf(validatingPython()) },
    async t => {
      await passSchemas(t, overlay(name))
    },
  )

  t.test(`${name}: the router's options are options, and its times fit together`, async t => {
    const manifests = overlay(name)
    const router = routerOf(manifests)
    const settings = settingsOf(router)
    const graceMs = 1000 * router.spec.template.spec.terminationGracePeriodSeconds
    t.ok(graceMs >= settings.shutdownDelayMs + settings.shutdownTimeoutMs + RELAY_MS_TO_SPARE)
    for (const engine of enginesOf(manifests)) {
      const engineMs = 1000 * engine.spec.template.spec.terminationGracePeriodSeconds
      t.ok(
        engineMs >= settings.shutdownTimeoutMs + RELAY_MS_TO_SPARE,
        `${engine.metadata.name} ends what routers relay`,
      )
    }
    const { readinessProbe, livenessProbe, startupProbe, ports } = containerOf(router)
    const open = ports.map(({ name, containerPort }: { name: string; containerPort: number }) => [
      name,
      containerPort,
    ])
    t.strictSame(open, [
      ['http', settings.port],
      ['admin', settings.adminPort],
    ])
    for (const [probe, path] of [
      [readinessProbe, '/ready'],
      [livenessProbe, '/health'],
      [startupProbe, '/health'],
    ])
      t.match(probe.httpGet, { path, port: 'http' })
  })

  t.test(`${name}: no variable of a Service stops the router`, async t => bearServices(t, overlay(name)))

  t.test(`${name}: the router finds the engines, and may read what it needs`, async t => {
    const manifests = overlay(name)
    const settings = settingsOf(routerOf(manifests))
    const [label, value] = settings.kubernetesSelector!.split('=') as [string, string]
    const engines = enginesOf(manifests)
    t.ok(engines.length > 0)
    for (const engine of engines) {
      const { labels, annotations } = engine.spec.template.metadata
      const service = oneOf(manifests, 'Service', one =>
        Object.entries(one.spec.selector).every(([key, text]) => labels[key] === text),
      )
      t.equal((service.metadata as unknown as { labels: Record<string, string> }).labels[label], value)
      // As its pod will be found.
      const pod = { name: 'a', address: '10.0.0.1' }
      const notes = readWorkerNotes({ metadata: { name: 'a', uid: 'uid-of-a', annotations } } as never)!
      const slice = readEndpointSlice(
        sliceObject(service.metadata.name, [pod], { ports: service.spec.ports }) as never,
      )!
      const { workers, faults } = sliceWorkers([slice], new Map([['a', notes]]), {
        port: settings.kubernetesPort,
      })
      t.strictSame(faults, [])
      const spec = parseWorkerSpec(workers[0]!.url, 0)
      t.strictSame([spec.eventsPort, spec.replayPort], EVENTS_PORTS)
      t.equal(spec.role, /^vllm-(.*)$/.exec(engine.metadata.name)?.[1])
      const { matchLabels } = oneOf(manifests, 'NetworkPolicy', one => one.metadata.name.endsWith('-workers'))
        .spec.podSelector
      t.match(labels, matchLabels)
    }
    const { rules } = oneOf(manifests, 'Role') as unknown as {
      rules: readonly { apiGroups: string[]; resources: string[]; verbs: string[] }[]
    }
    const may = new Set(
      rules.flatMap(({ apiGroups, resources, verbs }) =>
        verbs.map(verb => `${verb} ${resources} of "${apiGroups}"`),
      ),
    )
    for (const verb of ['get', 'list', 'watch'])
      for (const what of ['endpointslices of "discovery.k8s.io"', 'pods of ""'])
        t.ok(may.has(`${verb} ${what}`), `${verb} ${what}`)
  })
}

/** Ports on which routers hear each other: of bookings, and behind it of questions. */
const REPLICA_PORTS = [5800, 5801]
const HERE = { 'kubernetes.io/metadata.name': 'homing' }
const OPERATORS = { namespace: { 'homing/operators': 'true' } }
const GATEWAYS = { namespace: { 'homing/gateways': 'true' } }
const GATEWAY_HERE = { labels: { 'gateway.networking.k8s.io/gateway-name': 'inference-gateway' } }
const STRANGERS = [{}, { namespace: { a: 'b' } }]

const podLabels = (deployment: Manifest): { readonly labels: Record<string, string> } => ({
  labels: deployment.spec.template.metadata.labels,
})

/** Routers reach each other and their engines; all others only what is for them. */
function keepApart(t: Test, manifests: readonly Manifest[], router: Manifest): void {
  const may = (asking: Asking, port: number) => mayReach(manifests, asking, router, port, HERE)
  for (const port of REPLICA_PORTS) {
    t.ok(may(podLabels(router), port), `a router reaches another at ${port}`)
    for (const asking of [...STRANGERS, OPERATORS, GATEWAYS]) t.notOk(may(asking, port))
  }
  t.ok(may(OPERATORS, 9000))
  for (const asking of STRANGERS) t.notOk(may(asking, 9000))
}

for (const name of OVERLAYS)
  t.test(`${name}: routers reach each other`, async t => keepApart(t, overlay(name), routerOf(overlay(name))))

/** Gateways ask, and send requests to engines; no other pod does either. */
function letGatewaysIn(t: Test, manifests: readonly Manifest[], picker: Manifest, engine: Manifest): void {
  const may = (asking: Asking, whom: Manifest, port: number) => mayReach(manifests, asking, whom, port, HERE)
  for (const gateway of [GATEWAYS, GATEWAY_HERE]) {
    t.ok(may(gateway, picker, 9002))
    t.ok(may(gateway, engine, 8000))
    t.notOk(may(gateway, picker, 9000))
    for (const port of EVENTS_PORTS) t.notOk(may(gateway, engine, port), 'events are for the picker')
  }
  for (const stranger of [...STRANGERS, OPERATORS]) {
    t.notOk(may(stranger, picker, 9002))
    t.notOk(may(stranger, engine, 8000))
  }
  for (const port of [8000, ...EVENTS_PORTS]) t.ok(may(podLabels(picker), engine, port))
}

t.test('picker: the manifests pass the schemas', { skip: skipOf(validatingPython()) }, async t => {
  await passSchemas(t, overlay('picker'))
})

t.test('picker: its options, rights, ports and times fit together', async t => {
  const manifests = overlay('picker')
  const picker = oneOf(manifests, 'Deployment', one => one.metadata.name === 'homing-picker')
  const { command, args, ports, ...probes } = containerOf(picker)
  const { ENTRYPOINT: entry } = containerfile()
  t.strictSame([...command, 'router'], JSON.parse(entry!))
  const { settings, warnings } = parseSettings(pickerCommand, args.slice(1), serviceVariables(manifests))
  t.equal(args[0], 'picker')
  t.match(warnings, [/^HOMING_PICKER_PORT is ignored: it is the address of a Service/])
  t.equal(picker.spec.template.spec.enableServiceLinks, false)
  t.strictSame(
    Object.fromEntries(
      ports.map(({ name, containerPort }: Record<string, unknown>) => [name, containerPort]),
    ),
    { 'ext-proc': settings.pickerPort, health: settings.pickerHealthPort, admin: settings.port },
  )
  t.match(probes, {
    livenessProbe: { grpc: { port: settings.pickerHealthPort, service: 'liveness' } },
    readinessProbe: { grpc: { port: settings.pickerHealthPort, service: 'readiness' }, failureThreshold: 1 },
    startupProbe: { grpc: { port: settings.pickerHealthPort, service: 'liveness' } },
  })
  t.ok(settings.shutdownDelayMs >= 10_000, 'its port is open while gateways still ask there')
  t.ok(
    1000 * picker.spec.template.spec.terminationGracePeriodSeconds >=
      settings.shutdownDelayMs + settings.shutdownTimeoutMs + RELAY_MS_TO_SPARE,
  )

  const account = oneOf(manifests, 'ServiceAccount').metadata.name
  t.equal(picker.spec.template.spec.serviceAccountName, account)
  const rulesOf = (one: Manifest) => (one as unknown as { rules: unknown }).rules
  t.strictSame(
    rulesOf(oneOf(manifests, 'Role')),
    rulesOf(oneOf(kustomized(join(DEPLOY, 'kubernetes/base')), 'Role')),
  )
  t.match(oneOf(manifests, 'RoleBinding'), { subjects: [{ name: account }], roleRef: { name: account } })

  const [engine, ...others] = enginesOf(manifests).filter(one => one !== picker)
  t.strictSame(others, [])
  const pool = oneOf(manifests, 'InferencePool')
  const service = oneOf(manifests, 'Service', one => one.metadata.name === 'vllm')
  const { labels } = service.metadata as unknown as { labels: Record<string, string> }
  const [label, value] = settings.kubernetesSelector!.split('=') as [string, string]
  t.equal(labels[label], value)
  t.match(podLabels(engine!).labels, pool.spec.selector.matchLabels, 'the pool has the same pods')
  t.match(podLabels(engine!).labels, service.spec.selector)
  t.strictSame(pool.spec.targetPorts, [{ number: service.spec.ports[0].port }])
  const { endpointPickerRef } = pool.spec
  const asked = oneOf(manifests, 'Service', one => one.metadata.name === endpointPickerRef.name)
  t.match(podLabels(picker).labels, asked.spec.selector)
  t.equal(endpointPickerRef.port.number, asked.spec.ports[0].port)
  t.equal(asked.spec.ports[0].targetPort, 'ext-proc')
  t.match(oneOf(manifests, 'HTTPRoute').spec.rules, [{ backendRefs: [{ name: pool.metadata.name }] }])

  letGatewaysIn(t, manifests, picker, engine!)
  keepApart(t, manifests, picker)
  for (const asking of STRANGERS)
    t.ok(mayReach(manifests, asking, picker, settings.pickerHealthPort!, HERE), 'probes of nodes')
})

const noHelm = helmLibrary()

async function helmInstall(
  t: Test,
  values: object,
  release = 'router',
): Promise<{ readonly taken: readonly Manifest[]; readonly stderr: string; readonly stdout: string }> {
  const cluster = await HelmCluster.start()
  t.teardown(() => cluster.stop())
  const folder = t.testdir({})
  const kubeconfig = join(folder, 'kubeconfig')
  writeFileSync(
    kubeconfig,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'test',
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
      clusters: [{ name: 'test', cluster: { server: cluster.url } }],
      users: [{ name: 'test', user: {} }],
    }),
  )
  const library = (helmLibrary() as { readonly path: string }).path
  const script = join(import.meta.dirname, 'helm.py')
  const { stdout, stderr } = await runPython(t, found(plainPython()), [
    script,
    library,
    CHART,
    kubeconfig,
    JSON.stringify(values),
    release,
  ])
  return { taken: cluster.taken, stdout, stderr }
}

/** Of `--set NAME=VALUE`, as docs/kubernetes.md uses it: names with dots, texts, and lists in braces. */
function valuesOf(words: readonly string[]): Record<string, Record<string, unknown>> {
  const values: Record<string, Record<string, unknown>> = {}
  for (const [at, word] of words.entries()) {
    if (word !== '--set') continue
    const [, group, name, list, text] = /^(\w+)\.(\w+)=(?:\{(.*)\}|(.*))$/.exec(words[at + 1]!)!
    values[group!] = { ...values[group!], [name!]: list === undefined ? text : list.split(',') }
  }
  return values
}

t.test(
  'the chart installs with the values that docs/kubernetes.md has users type',
  { skip: typeof noHelm === 'string' && noHelm },
  async t => {
    const lines = fencesOf('kubernetes.md').flatMap(({ text }) => text.replaceAll(/\\\n\s*/g, '').split('\n'))
    const typed = lines.filter(line => line.startsWith('helm install '))
    t.equal(typed.length, 1)
    const words = wordsOf(typed[0]!)
    t.strictSame(words.slice(0, 4), ['helm', 'install', 'router', 'deploy/helm/homing'])
    const { taken, stderr } = await helmInstall(t, valuesOf(words), words[2])
    t.equal(stderr, '')
    const router = routerOf(taken)
    t.match(containerOf(router).image, /^registry\.example\.com\/homing:\d/)
    t.strictSame(settingsOf(router).kubernetesServices, ['vllm'])
  },
)

t.test('the chart makes what the base makes', { skip: typeof noHelm === 'string' && noHelm }, async t => {
  const { taken, stdout, stderr } = await helmInstall(t, {})
  t.equal(stderr, '')
  const { Messages: messages } = JSON.parse(stdout) as { Messages: readonly { Severity: number }[] }
  t.strictSame(
    messages.filter(({ Severity }) => Severity > 1),
    [],
    'Helm finds no fault in it',
  )
  const base = kustomized(join(DEPLOY, 'kubernetes/base'))
  const count = (manifests: readonly Manifest[]) => manifests.map(({ kind }) => kind).sort()
  t.strictSame(count(taken), count(base))
  const [ofChart, ofBase] = [routerOf(taken), routerOf(base)]
  t.strictSame(settingsOf(ofChart), settingsOf(ofBase))
  keepApart(t, taken, ofChart)
  const ignored = ({ image: _, imagePullPolicy: __, args: ___, ...rest }: Record<string, unknown>) => rest
  t.strictSame(ignored(containerOf(ofChart)), ignored(containerOf(ofBase)))
  t.equal(
    ofChart.spec.template.spec.terminationGracePeriodSeconds,
    ofBase.spec.template.spec.terminationGracePeriodSeconds,
  )
  t.strictSame(
    (oneOf(taken, 'Role') as unknown as { rules: unknown }).rules,
    (oneOf(base, 'Role') as unknown as { rules: unknown }).rules,
  )
})

const ALL_VALUES = {
  workers: { services: ['prefill', 'decode'], namespace: 'models', port: 8000 },
  extraArgs: ['--router-replica-sync', '--nats=nats:4222'],
  extraEnv: [{ name: 'HOMING_ENGINE_API_KEY', valueFrom: { secretKeyRef: { name: 'engines', key: 'key' } } }],
  extraVolumes: [{ name: 'tokenizer', configMap: { name: 'tokenizer' } }],
  extraVolumeMounts: [{ name: 'tokenizer', mountPath: '/tokenizer' }],
  shutdown: { delaySeconds: 5, timeoutSeconds: 60 },
  serviceMonitor: { enabled: true, labels: { release: 'prometheus' } },
  nodeSelector: { pool: 'cpu' },
  tolerations: [{ key: 'a', operator: 'Exists' }],
  podAnnotations: { a: 'b' },
  service: { type: 'LoadBalancer', port: 8080, annotations: { a: 'b' } },
}

t.test('the chart with all values', { skip: typeof noHelm === 'string' && noHelm }, async t => {
  const { taken, stderr } = await helmInstall(t, ALL_VALUES)
  t.equal(stderr, '')
  const router = routerOf(taken)
  t.match(settingsOf(router), {
    kubernetesServices: ['prefill', 'decode'],
    kubernetesSelector: undefined,
    kubernetesNamespace: 'models',
    kubernetesPort: '8000',
    replicaSync: true,
  })
  t.equal(router.spec.template.spec.terminationGracePeriodSeconds, 80)
  t.equal(oneOf(taken, 'Role').metadata.namespace, 'models')
  const monitor = oneOf(taken, 'ServiceMonitor')
  const admin = oneOf(taken, 'Service', one => one.metadata.name.endsWith('-admin'))
  t.match((admin.metadata as unknown as { labels: object }).labels, monitor.spec.selector.matchLabels)
  t.equal(monitor.spec.endpoints[0].port, admin.spec.ports[0].name)
})

t.test(
  'the chart with all values passes the schemas of Kubernetes',
  { skip: typeof noHelm === 'string' ? noHelm : skipOf(validatingPython()) },
  async t => {
    for (const values of [{}, ALL_VALUES, { ...ALL_VALUES, picker: { enabled: true } }])
      await passSchemas(t, (await helmInstall(t, values)).taken)
  },
)

t.test(
  'the chart with a picker lets gateways in',
  { skip: typeof noHelm === 'string' && noHelm },
  async t => {
    const { taken, stderr } = await helmInstall(t, { picker: { enabled: true, workersPort: 'http' } })
    t.equal(stderr, '')
    const router = routerOf(taken)
    const { pickerPort } = settingsOf(router)
    const service = oneOf(taken, 'Service', one => one.metadata.name.endsWith('-picker'))
    t.equal(service.spec.ports[0].port, pickerPort)
    t.match(podLabels(router).labels, service.spec.selector)
    const [engine] = enginesOf(overlay('aggregated'))
    letGatewaysIn(t, taken, router, engine!)
    keepApart(t, taken, router)
  },
)

t.test(
  'the chart opens the port of engines to gateways that its values name',
  { skip: typeof noHelm === 'string' && noHelm },
  async t => {
    const portsFor = async (values: object): Promise<readonly unknown[]> => {
      const { taken, stderr } = await helmInstall(t, values)
      t.equal(stderr, '')
      const policy = oneOf(taken, 'NetworkPolicy', one => one.metadata.name.endsWith('-workers'))
      return policy.spec.ingress.flatMap(({ ports = [] }: { ports?: readonly { port: unknown }[] }) =>
        ports.map(({ port }) => port),
      )
    }
    const picker = { enabled: true }
    t.strictSame(await portsFor({ picker, workers: { port: '8001' } }), [8001])
    t.strictSame(await portsFor({ picker, workers: { port: 8001 } }), [8001])
    t.strictSame(await portsFor({ picker, workers: { port: 'api' } }), ['api'])
    t.strictSame(await portsFor({ picker: { ...picker, workersPort: 'openai' }, workers: { port: 'api' } }), [
      'openai',
    ])
    t.strictSame(await portsFor({}), [])
  },
)

t.test(
  'a picker whose values name no port of engines is refused, unless no policy needs one',
  { skip: typeof noHelm === 'string' && noHelm },
  async t => {
    const picker = { enabled: true }
    const { taken, stderr } = await helmInstall(t, { picker })
    t.match(stderr, /picker\.enabled: set picker\.workersPort to .* engines/)
    t.strictSame(taken, [], 'nothing is installed')
    t.equal((await helmInstall(t, { picker, networkPolicy: { enabled: false } })).stderr, '')
  },
)

t.test(
  'a release named homing bears the variables of its Services',
  { skip: typeof noHelm === 'string' && noHelm },
  async t => {
    const { taken, stderr } = await helmInstall(t, {}, 'homing')
    t.equal(stderr, '')
    bearServices(t, taken)
  },
)

t.test(
  'values that are none are refused by name',
  { skip: typeof noHelm === 'string' && noHelm },
  async t => {
    t.match((await helmInstall(t, { replica: 3 })).stderr, /additional properties 'replica' not allowed/)
    t.match(
      (await helmInstall(t, { workers: { selector: '' } })).stderr,
      /name the Services of the engines, or their labels/,
    )
  },
)

t.test('the monitor of deploy/kubernetes names the port for operators', async t => {
  const [monitor] = manifestsIn(join(DEPLOY, 'kubernetes/monitoring/service-monitor.yaml'))
  const admin = oneOf(
    kustomized(join(DEPLOY, 'kubernetes/base')),
    'Service',
    one => one.metadata.name === 'homing-admin',
  )
  t.match((admin.metadata as unknown as { labels: object }).labels, monitor!.spec.selector.matchLabels)
  t.equal(monitor!.spec.endpoints[0].port, admin.spec.ports[0].name)
  t.equal(monitor!.spec.namespaceSelector, undefined, 'it looks in its own namespace')
  const namespace = namespaceOf(join(DEPLOY, 'kubernetes/monitoring'))
  t.type(namespace, 'string')
  for (const name of OVERLAYS) {
    t.equal(namespaceOf(join(DEPLOY, 'kubernetes/overlays', name)), namespace, name)
    t.equal(oneOf(overlay(name), 'Namespace').metadata.name, namespace)
  }
})

const answering =
  (text: string): RequestListener =>
  (_, response) =>
    void response.end(text)

/** How engines say what they have, and the looks that it takes to believe that it is nothing. */
const FIGURES = {
  vllm: {
    isDone: [0],
    said: (running: number): string =>
      `# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} ${running}.0\nvllm:num_requests_waiting{engine="0",model_name="m"} 0.0\n`,
  },
  sglang: {
    isDone: [0, 0, 1, ...Array<number>(10).fill(0)],
    said: (running: number): string =>
      `# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} ${running}.0\nsglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 0.0\n`,
  },
}

/** Of a look that is answered, however slow the machine; and of one that is not. */
const ANSWERED_S = 60
const SILENT_S = 0.5

/**
 * Runs the preStop of an engine, its pauses shortened, against `answer`; `limitsS` are the time limits of its
 * looks. Resolves when the hook has ended.
 */
async function drain(
  t: Test,
  engine: Manifest,
  answer: RequestListener,
  limitsS: readonly number[],
): Promise<void> {
  const [command, flag, script] = containerOf(engine).lifecycle.preStop.exec.command as readonly string[]
  t.strictSame([command, flag], ['python3', '-c'])
  const server = createServer(answer)
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  const { port } = server.address() as AddressInfo
  const quick = script!
    .replace('127.0.0.1:8000', `127.0.0.1:${port}`)
    .replaceAll(/time\.sleep\(\d\)/g, 'time.sleep(0.01)')
    .replace('timeout=10', 'timeout=limits.pop(0)')
  const program = `limits = ${JSON.stringify(limitsS)}\n${quick}`
  const { exitCode, stderr } = await runPython(t, found(plainPython()), ['-c', program])
  t.equal(exitCode, 0, stderr)
}

for (const name of OVERLAYS)
  for (const engine of enginesOf(overlay(name)))
    t.test(
      `the preStop of ${name}/${engine.metadata.name} waits for open requests, also while the engine cannot say them`,
      { skip: skipOf(plainPython()) },
      async t => {
        let asked = 0
        const { isDone, said } = FIGURES[containerOf(engine).name as keyof typeof FIGURES]
        // The engine has its thread for something else.
        const silent: RequestListener = () => {}
        const answers: readonly RequestListener[] = [
          answering(said(2)),
          (_, response) => void response.writeHead(503).end('busy'),
          silent,
          (_, response) => void response.destroy(),
          (_, response) => {
            response.writeHead(200, { 'content-length': 1000 })
            response.write(said(0), () => response.destroy())
          },
          // An engine that does not name the figure is not an idle one.
          answering('# nothing yet\n'),
          answering(said(1)),
          ...isDone.map(count => answering(said(count))),
        ]
        const limitsS = answers.map(answer => (answer === silent ? SILENT_S : ANSWERED_S))
        await drain(t, engine, (request, response) => answers[asked++]!(request, response), limitsS)
        t.equal(asked, answers.length)
      },
    )

t.test('the unit of systemd is one, and its times fit', async t => {
  const path = join(DEPLOY, 'systemd/homing.service')
  const lines = readFileSync(path, 'utf8')
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('#'))
  for (const line of lines) t.match(line, /^(?:\[\w+\]|[A-Z]\w+=.*)$/)
  const of = (name: string) => lines.find(line => line.startsWith(`${name}=`))?.slice(name.length + 1)
  const { settings } = parseSettings(routerCommand, [], {})
  t.ok(
    Number(of('TimeoutStopSec')) * 1000 >=
      settings.shutdownDelayMs + settings.shutdownTimeoutMs + RELAY_MS_TO_SPARE,
  )
})

t.test(
  'systemd-analyze finds no fault in the unit',
  { skip: isInstalled('systemd-analyze') ? false : 'systemd-analyze is not installed' },
  async t => {
    const path = join(DEPLOY, 'systemd/homing.service')
    const { error, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', path], { encoding: 'utf8' })
    t.equal(error, undefined)
    const faults = stderr.split('\n').filter(line => line.includes('homing.service:'))
    // It has looked: the one thing that it misses is what docs/deploy.md installs.
    const [missing, ...others] = faults
    t.match(missing, /Command \/opt\/homing\/\S+ is not executable/)
    t.strictSame(others, [])
    const wrong = join(t.testdir({}), 'homing.service')
    writeFileSync(wrong, `${readFileSync(path, 'utf8')}\n[Service]\nProtectSytem=strict\n`)
    const found = spawnSync('systemd-analyze', ['verify', '--man=no', wrong], { encoding: 'utf8' })
    t.match(found.stderr, /Unknown key .*'ProtectSytem'/, 'it finds a fault where there is one')
  },
)

t.test('versions of the package, the chart and the images of Kustomize are the same', async t => {
  const { version } = JSON.parse(readFileSync(join(DEPLOY, '../packages/homing/package.json'), 'utf8')) as {
    version: string
  }
  const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8')) as {
    version: string
    appVersion: string
  }
  t.strictSame([chart.version, chart.appVersion], [version, version])
  const folder = join(DEPLOY, 'kubernetes')
  const tags = globSync('**/kustomization.yaml', { cwd: folder }).flatMap(file => {
    const { images = [] } = parse(readFileSync(join(folder, file), 'utf8')) as {
      readonly images?: readonly { readonly newTag: string }[]
    }
    return images.map(({ newTag }) => newTag)
  })
  t.ok(tags.length > 0)
  t.strictSame(new Set(tags), new Set([version]))
})
