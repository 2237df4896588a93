/**
 * A cluster for `helm install`, `kubectl apply` and `kubectl label`, as far as these need one: it says which
 * kinds there are, takes every object, and keeps them. So what they send is what they would have a cluster
 * make.
 */

import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly namespace?: string }
  // biome-ignore lint/suspicious/noExplicitAny: manifests have many forms
  readonly spec?: any
}

/** By group and version: kinds with the names of their resources. */
const KINDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  v1: { Service: 'services', ServiceAccount: 'serviceaccounts', Secret: 'secrets', Namespace: 'namespaces' },
  'apps/v1': { Deployment: 'deployments' },
  'rbac.authorization.k8s.io/v1': { Role: 'roles', RoleBinding: 'rolebindings' },
  'policy/v1': { PodDisruptionBudget: 'poddisruptionbudgets' },
  'networking.k8s.io/v1': { NetworkPolicy: 'networkpolicies' },
  'monitoring.coreos.com/v1': { ServiceMonitor: 'servicemonitors' },
  'inference.networking.k8s.io/v1': { InferencePool: 'inferencepools' },
  'gateway.networking.k8s.io/v1': { HTTPRoute: 'httproutes' },
}

export class HelmCluster {
  readonly #server: Server
  /** In the order in which they came, without those of Helm itself. */
  readonly taken: Manifest[] = []

  private constructor() {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', chunk => chunks.push(chunk))
      request.on('end', () => {
        const [status, body] = this.#answer(request.method!, request.url!, Buffer.concat(chunks).toString())
        response.writeHead(status, { 'content-type': 'application/json' })
        response.end(JSON.stringify(body))
      })
    })
  }

  static async start(): Promise<HelmCluster> {
    const cluster = new HelmCluster()
    await new Promise<void>(resolve => cluster.#server.listen(0, '127.0.0.1', resolve))
    return cluster
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async stop(): Promise<void> {
    const closed = new Promise<void>(resolve => this.#server.close(() => resolve()))
    this.#server.closeAllConnections()
    await closed
  }

  #answer(method: string, target: string, text: string): readonly [number, object] {
    const { pathname } = new URL(target, 'http://cluster')
    if (method !== 'GET') {
      // Helm's own record of the release, in protocol buffers.
      if (pathname.includes('/secrets'))
        return [201, { kind: 'Secret', apiVersion: 'v1', metadata: { name: 'release' } }]
      const manifest = JSON.parse(text) as Manifest
      const at = this.taken.findIndex(one => pathOf(one) === pathname)
      if (method === 'PATCH' && at >= 0) {
        const { metadata, ...rest } = this.taken[at]!
        const labels = { ...(metadata as Labelled).labels, ...(manifest.metadata as Labelled).labels }
        this.taken[at] = { ...rest, metadata: { ...metadata, labels } as Manifest['metadata'] }
        return [200, this.taken[at]]
      }
      this.taken.push(manifest)
      return [201, manifest]
    }
    if (pathname === '/version') return [200, { major: '1', minor: '33', gitVersion: 'v1.33.0' }]
    if (pathname === '/api') return [200, { kind: 'APIVersions', versions: ['v1'] }]
    if (pathname === '/apis') return [200, groupList()]
    const groupVersion = Object.keys(KINDS).find(
      version => pathname === (version === 'v1' ? '/api/v1' : `/apis/${version}`),
    )
    if (groupVersion !== undefined) return [200, resourceList(groupVersion)]
    const known = this.taken.find(one => pathOf(one) === pathname)
    if (known !== undefined) return [200, known]
    if (pathname.endsWith('/secrets'))
      return [200, { kind: 'SecretList', apiVersion: 'v1', metadata: {}, items: [] }]
    return [
      404,
      {
        kind: 'Status',
        apiVersion: 'v1',
        status: 'Failure',
        reason: 'NotFound',
        message: 'not found',
        code: 404,
      },
    ]
  }
}

interface Labelled {
  readonly labels?: Readonly<Record<string, string>>
}

/** Of an object that Helm or kubectl asks for. */
function pathOf({ apiVersion, kind, metadata: { name, namespace } }: Manifest): string {
  const group = apiVersion === 'v1' ? '/api/v1' : `/apis/${apiVersion}`
  const within = namespace === undefined ? '' : `/namespaces/${namespace}`
  return `${group}${within}/${KINDS[apiVersion]?.[kind]}/${name}`
}

function groupList(): object {
  const groups = Object.keys(KINDS).filter(version => version !== 'v1')
  return {
    kind: 'APIGroupList',
    apiVersion: 'v1',
    groups: groups.map(groupVersion => {
      const [name, version] = groupVersion.split('/')
      return { name, versions: [{ groupVersion, version }], preferredVersion: { groupVersion, version } }
    }),
  }
}

function resourceList(groupVersion: string): object {
  return {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion,
    resources: Object.entries(KINDS[groupVersion]!).map(([kind, name]) => ({
      name,
      singularName: kind.toLowerCase(),
      namespaced: kind !== 'Namespace',
      kind,
      verbs: ['create', 'get', 'list', 'patch', 'update', 'watch'],
    })),
  }
}
