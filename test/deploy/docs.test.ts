/**
 * docs/kubernetes.md, docs/deploy.md and the pages that it sends to: each line that is typed is checked as
 * far as this machine can. What systemd.test.ts, container-lines.test.ts and kubectl.test.ts type is not
 * repeated here.
 */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  indexerCommand,
  parseSettings,
  pickerCommand,
  routerCommand,
  selectCommand,
  sidecarCommand,
  slotsCommand,
} from '@homing/config'
import { readDnsName, readWorkerNotes } from '@homing/discovery'
import t from 'tap'
import { parse } from 'yaml'
import { DEPLOY, kustomized, manifestsIn } from './manifests.ts'
import { pageOf, wordsOf } from './page-fences.ts'

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

const COMMANDS = {
  router: routerCommand,
  picker: pickerCommand,
  indexer: indexerCommand,
  slots: slotsCommand,
  select: selectCommand,
  sidecar: sidecarCommand,
} as const
/** docs/deploy.md, and those that it names for more. */
const PAGES = [
  ...['deploy.md', 'kubernetes.md', 'scale-out.md', 'security.md', 'keys.md', 'queue.md', 'operations.md'],
  ...['engines.md', 'endpoint-picker.md', 'requests.md', 'reliability.md', 'first-hour.md', 'policies.md'],
]

/** The lines of fences that name no other language than sh, those that go on joined. */
function fenceLines(text: string): readonly string[] {
  const lines: string[] = []
  let language: string | undefined
  for (const line of text.replaceAll(/\\\n\s*/g, '').split('\n')) {
    const fence = /^ *```(.*)$/.exec(line)
    if (fence !== null) language = language === undefined ? fence[1]! : undefined
    else if (language === '' || language === 'sh') lines.push(line.trim())
  }
  return lines
}

t.test('the options of every line that starts a program of ours are options', async t => {
  let seen = 0
  for (const name of PAGES)
    for (const line of fenceLines(page(name))) {
      const typed = /^(?:npx )?homing ([a-z]+) (.*)$/.exec(line)
      const command = COMMANDS[typed?.[1] as keyof typeof COMMANDS] as typeof routerCommand | undefined
      if (command === undefined || /[`│]/.test(line)) continue
      seen++
      // A worker that the page leaves out.
      const argv = wordsOf(typed![2]!.replaceAll('…', 'http://10.0.0.9:8001'))
      t.doesNotThrow(() => parseSettings(command, argv, {}), `${name}: ${line}`)
    }
  t.ok(seen >= 20, `${seen} lines`)
})

t.test('the settings and the Deployment of docs/deploy.md are some', async t => {
  const blocks = Array.from(page('deploy.md').matchAll(/```yaml\n([\s\S]*?)```/g), ([, text]) => text!)
  const [settingsText, deploymentText, ...others] = blocks
  t.strictSame(others, [])
  const file = join(t.testdir({ 'router.yaml': settingsText! }), 'router.yaml')
  const { settings, warnings } = parseSettings(routerCommand, ['--config', file], {})
  t.strictSame(warnings, [])
  t.equal(Object.keys(parse(settingsText!)).length, 8)
  t.match(settings, { host: '0.0.0.0', port: 8000, adminPort: 9000, logLevel: 'info' })

  const { spec } = parse(deploymentText!)
  const [container] = spec.template.spec.containers
  const inPod = parseSettings(routerCommand, container.args, {}).settings
  t.ok(
    spec.template.spec.terminationGracePeriodSeconds * 1000 >=
      inPod.shutdownDelayMs + inPod.shutdownTimeoutMs + 10_000,
  )
  for (const probe of [container.readinessProbe, container.livenessProbe])
    t.equal(probe.httpGet.port, inPod.port)
  const base = kustomized(join(DEPLOY, 'kubernetes/base')).find(({ kind }) => kind === 'Deployment')!.spec
  t.match(base.strategy.rollingUpdate, spec.strategy.rollingUpdate)
  t.equal(base.replicas, spec.replicas)
  t.equal(base.template.spec.terminationGracePeriodSeconds, spec.template.spec.terminationGracePeriodSeconds)
})

t.test(
  'logrotate of docs/deploy.md rotates the access log, and leaves the new file to the router',
  async t => {
    const text = readFileSync(join(DEPLOY, 'systemd/logrotate'), 'utf8')
    const [, path, body] = /^#.*\n(\S+) \{\n([^}]*)\}\n$/.exec(text)!
    const settings = parse(readFileSync(join(DEPLOY, 'systemd/router.yaml'), 'utf8'))
    t.equal(path, settings['access-log'])
    const directives = body!.trim().split(/\s*\n\s*/)
    for (const one of directives)
      t.match(
        one,
        /^(?:daily|rotate \d+|compress|delaycompress|missingok|nocreate)$/,
        'logrotate(8) knows it',
      )
    // Another process with the same file could go on writing into what is compressed.
    for (const needed of ['nocreate', 'delaycompress']) t.ok(directives.includes(needed), needed)
  },
)

/** Which test types what a fence of docs/deploy.md has, or uses the file that it is. */
const WAYS: readonly (readonly [section: string, language: string, begins: RegExp, test: string])[] = [
  ['systemd', 'sh', /^npx /, 'systemd.test.ts types each of its lines'],
  ['systemd', 'yaml', /^# \/etc\/homing\/router\.yaml/, 'systemd.test.ts: the service runs with it'],
  ['systemd', '', /^# \/etc\/logrotate\.d\/homing/, 'logrotate below, systemd.test.ts'],
  ['Container', '', /^podman /, 'container-lines.test.ts types each of its lines'],
  ['Rollouts on Kubernetes', 'yaml', /^# Of a Deployment/, 'the Deployment above'],
]
/** Commands in the text: systemd.test.ts types them on its machine. */
const INLINE = [/^ulimit -n \d+$/, /^journalctl -u homing$/, /^homing router --help$/]
const PROGRAMS =
  /^(?:sudo|systemctl|journalctl|systemd-\S+|useradd|install|openssl|npm|npx|pnpm|node|homing|podman|docker|kubectl|helm|curl|kill|ulimit|logrotate)\b/

t.test('every command of docs/deploy.md has a test that types it', async t => {
  const { fences, inline } = pageOf('deploy.md')
  for (const { section, language, text } of fences) {
    const ways = WAYS.filter(way => way[0] === section && way[1] === language && way[2].test(text))
    t.equal(ways.length, 1, `a test types this, and is named in WAYS:\n${text}`)
  }
  for (const text of inline.filter(one => PROGRAMS.test(one) && one.includes(' ')))
    t.ok(
      INLINE.some(known => known.test(text)),
      `a test types ${text}`,
    )
  t.equal(fences.length, WAYS.length)
})

t.test('the lines of docs/deploy.md about the container are about this Containerfile', async t => {
  const lines = fenceLines(page('deploy.md')).filter(line => /^(?:podman|docker) /.test(line))
  t.equal(lines.length, 2)
  const [build, run] = lines as [string, string]
  t.match(build, /^podman build -t homing \.\s+# or: docker build -f Containerfile -t homing \.$/)
  const file = readFileSync(join(ROOT, 'Containerfile'), 'utf8')
  for (const line of lines) t.ok(file.includes(line.split(/\s+#/)[0]!), 'its head says the same')
  const words = wordsOf(run)
  const image = words.indexOf('homing')
  t.strictSame(words.slice(0, image), ['podman', 'run', '-p', '8000:8000'])
  // What is given takes the place of CMD, behind the ENTRYPOINT, which is `homing router`.
  t.match(file, /^ENTRYPOINT \[.*, "router"\]$/m)
  const { settings } = parseSettings(routerCommand, words.slice(image + 1), {})
  t.match(file, new RegExp(`^EXPOSE ${settings.port}$`, 'm'))
  t.equal(settings.workers.length, 2)
})

t.test('every file that docs/deploy.md has users install is there', async t => {
  const named = typedIn(page('deploy.md')).flatMap(line => line.match(/\bdeploy\/[\w/.-]+/g) ?? [])
  t.ok(named.length > 0)
  for (const file of named) t.ok(existsSync(join(ROOT, file)), file)
})
