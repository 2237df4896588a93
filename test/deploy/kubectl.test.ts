/**
 * The lines with kubectl in docs/kubernetes.md and docs/endpoint-picker.md, typed with a real kubectl at a
 * cluster that takes everything; and kustomize, which is in it, against what the other tests take for its
 * output.
 */

import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { parseAllDocuments } from 'yaml'
import { kubectlProgram, pathOf, skipOfFile } from '../python/interpreter.ts'
import { HelmCluster, type Manifest } from './helm-cluster.ts'
import { DEPLOY, kustomized } from './manifests.ts'

const ROOT = join(import.meta.dirname, '../..')
const FOLDERS = [
  'base',
  'monitoring',
  'overlays/aggregated',
  'overlays/disaggregated',
  'overlays/sglang',
  'overlays/picker',
]
/** What kubectl adds to an object that it applies. */
const APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

const kubectl = kubectlProgram()
const skip = skipOfFile(kubectl)

const LINES = ['kubernetes.md', 'endpoint-picker.md'].flatMap(page =>
  readFileSync(join(ROOT, 'docs', page), 'utf8')
    .split('\n')
    .filter(line => /^kubectl (apply|label) /.test(line))
    .map(line => line.replace(/\s+#.*$/, '')),
)

async function type(t: Test, args: readonly string[], cluster?: HelmCluster): Promise<string> {
  const home = t.testdir({})
  const config = join(home, 'kubeconfig')
  const user = { name: 'a', user: {} }
  writeFileSync(
    config,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'a',
      contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
      clusters: [{ name: 'a', cluster: { server: cluster?.url ?? 'http://127.0.0.1:1' } }],
      users: [user],
    }),
  )
  const env = { PATH: process.env['PATH'], HOME: home, KUBECONFIG: config }
  const { stdout } = await promisify(execFile)(pathOf(kubectl), args, { cwd: ROOT, env })
  return stdout
}

/** In an order of their own, without what kubectl notes of itself. */
const sorted = (manifests: readonly Manifest[]): readonly Manifest[] =>
  manifests
    .map(one => {
      const { annotations, ...metadata } = one.metadata as { annotations?: Record<string, string> }
      const { [APPLIED]: _, ...others } = annotations ?? {}
      const hasOthers = Object.keys(others).length > 0
      const noted = hasOthers ? { ...metadata, annotations: others } : metadata
      return { ...one, metadata: noted } as unknown as Manifest
    })
    .toSorted((a, b) => nameOf(a).localeCompare(nameOf(b)))

const nameOf = ({ kind, metadata: { name } }: Manifest): string => `${kind} ${name}`

for (const folder of FOLDERS)
  t.test(`${folder}: kustomize makes what the other tests look at`, { skip }, async t => {
    const path = join(DEPLOY, 'kubernetes', folder)
    const text = await type(t, ['kustomize', path])
    const made = parseAllDocuments(text).map(document => document.toJS() as Manifest)
    t.strictSame(sorted(made), sorted(kustomized(path)))
    for (const one of made) {
      if (one.kind !== 'RoleBinding' || folder === 'base') continue
      const { subjects } = one as unknown as { readonly subjects: readonly object[] }
      t.match(subjects, [{ namespace: one.metadata.namespace }], 'its account is in a namespace')
    }
  })

t.test('every line of the pages is taken by a cluster', { skip }, async t => {
  t.ok(LINES.length >= 6)
  const cluster = await HelmCluster.start()
  t.teardown(() => cluster.stop())
  for (const line of LINES) {
    const [, verb, ...rest] = line.split(' ').filter(word => word !== '')
    cluster.taken.length = 0
    if (verb === 'label') {
      const [kind, name, label] = rest as [string, string, string]
      t.equal(kind, 'namespace')
      cluster.taken.push({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
      t.match(await type(t, [verb, ...rest], cluster), `namespace/${name} labeled`)
      const [key, value] = label.split('=') as [string, string]
      t.match(cluster.taken, [{ metadata: { labels: { [key]: value } } }], line)
      continue
    }
    // This cluster has no schemas; those of Kubernetes are asked in manifests.test.ts.
    await type(t, [verb!, '--validate=false', ...rest], cluster)
    t.strictSame(sorted(cluster.taken), sorted(kustomized(join(ROOT, rest.at(-1)!))), line)
  }
})
