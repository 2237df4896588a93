/** docs/kubernetes.md and docs/deploy.md: each line that is typed is checked as far as this machine can. */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSettings, routerCommand } from '@homing/config'
import { readDnsName, readWorkerNotes } from '@homing/discovery'
import t from 'tap'
import { parse } from 'yaml'
import { DEPLOY, kustomized, manifestsIn } from './manifests.ts'

const ROOT = join(import.meta.dirname, '../..')
const page = (name: string): string => readFileSync(join(ROOT, 'docs', name), 'utf8')

/** Lines of the shell, those that go on joined. */
function typedIn(text: string): readonly string[] {
  return [...text.matchAll(/```sh\n([\s\S]*?)```/g)].flatMap(([, block]) =>
    block!
      .replaceAll(/\\\n\s*/g, '')
      .split('\n')
      .map(line => line.replace(/\s+#.*$/, '').trim())
      .filter(line => line !== ''),
  )
}

t.test('every line of docs/kubernetes.md says what there is', async t => {
  const lines = typedIn(page('kubernetes.md'))
  t.ok(lines.length >= 10)
  for (const line of lines) {
    const words = line.replaceAll("'", '').split(' ')
    if (line.startsWith('homing router ')) {
      const { settings } = parseSettings(routerCommand, words.slice(2), {})
      t.ok(['kubernetes', 'dns'].includes(settings.discovery), line)
      for (const name of settings.dnsNames) t.type(readDnsName(name), 'object', line)
    } else if (line.startsWith('kubectl apply -k ')) {
      t.ok(existsSync(join(ROOT, words[3]!, 'kustomization.yaml')), line)
    } else if (line.startsWith('helm install ')) {
      const chart = words[3]!
      t.ok(existsSync(join(ROOT, chart, 'Chart.yaml')), line)
      const values = parse(readFileSync(join(ROOT, chart, 'values.yaml'), 'utf8')) as Record<
        string,
        Record<string, unknown>
      >
      for (const [at, word] of words.entries()) {
        if (word !== '--set') continue
        const [group, name] = words[at + 1]!.split('=')[0]!.split('.') as [string, string]
        t.not(values[group]?.[name], undefined, `${group}.${name} is a value of the chart`)
      }
    } else if (line.startsWith('kubectl label namespace ')) {
      const [label, value] = words[4]!.split('=') as [string, string]
      const operators = { [label]: value }
      const [policy] = manifestsIn(join(DEPLOY, 'kubernetes/base/network-policy.yaml'))
      const { from } = policy!.spec.ingress.find((rule: object) => 'from' in rule)
      t.strictSame(from, [{ namespaceSelector: { matchLabels: operators } }], line)
      const values = parse(readFileSync(join(DEPLOY, 'helm/homing/values.yaml'), 'utf8'))
      t.strictSame(values.networkPolicy.operators, operators, line)
    } else if (!line.startsWith('curl '))
      t.match(line, /^kubectl -n homing port-forward svc\/homing 8000:80$/)
  }
})

t.test('the times of docs/kubernetes.md are those of the manifests', async t => {
  const text = page('kubernetes.md')
  for (const folder of ['base', 'overlays/aggregated', 'overlays/disaggregated', 'overlays/sglang'])
    for (const { kind, spec } of kustomized(join(DEPLOY, 'kubernetes', folder))) {
      if (kind !== 'Deployment') continue
      t.equal(spec.template.spec.terminationGracePeriodSeconds, 330)
      const { args } = spec.template.spec.containers[0] as { readonly args: readonly string[] }
      if (!args?.includes('--discovery-backend=kubernetes')) continue
      const settings = parseSettings(routerCommand, args, {}).settings
      t.equal(settings.shutdownTimeoutMs, 5 * 60_000)
      t.equal(settings.requestTimeoutMs, 0)
      t.equal(settings.drainMsMax, 10 * 60_000)
    }
  t.match(text, /longer than 5 minutes after its router ends, or than 330 s after its engine does, is cut/)
  t.match(text, /`--worker-drain-timeout`, 10 min/)
})

t.test('the annotations of docs/kubernetes.md are those that are read', async t => {
  const rows = page('kubernetes.md')
    .split('\n')
    .filter(line => line.startsWith('| `homing/'))
  const named = rows.flatMap(row =>
    Array.from(row.split('|')[1]!.matchAll(/homing\/[a-z-]+/g), ([name]) => name),
  )
  const notes = (annotations: object) => readWorkerNotes({ metadata: { name: 'a', uid: 'u', annotations } })!
  const { fault } = notes({ 'homing/none': '' })
  const known = fault!.split('known ones are ')[1]!.split(', ')
  t.strictSame(named.toSorted(), known.toSorted())
})

t.test('every file that docs/deploy.md has users install is there', async t => {
  const named = typedIn(page('deploy.md')).flatMap(line => line.match(/\bdeploy\/[\w/.-]+/g) ?? [])
  t.ok(named.length > 0)
  for (const file of named) t.ok(existsSync(join(ROOT, file)), file)
})
