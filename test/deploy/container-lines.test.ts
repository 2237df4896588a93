/**
 * The lines about the container in docs/deploy.md, typed with the real clients of Podman and Docker at an
 * engine that takes everything: what they would have built and run. What the Containerfile does then is in
 * container.test.ts. A client that is not installed is skipped by name.
 */

import { execFile, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { promisify } from 'node:util'
import { parseSettings, routerCommand } from '@homing/config'
import { isInstalled } from '@homing/transport/testing'
import t from 'tap'
import { type Build, ContainerEngine } from './container-engine.ts'
import { fencesOf } from './page-fences.ts'

const ROOT = join(import.meta.dirname, '../..')
const FILE = readFileSync(join(ROOT, 'Containerfile'), 'utf8')
const LINE_MS_MAX = 120_000

/** What is typed, and what stands behind `# or: `. */
const LINES = fencesOf('deploy.md')
  .filter(({ section, language }) => section === 'Container' && language === '')
  .flatMap(({ text }) => text.trim().split('\n'))
  .flatMap(line => line.split(/\s+# or: /))
const BUILDS = LINES.filter(line => /^(?:podman|docker) build /.test(line))
/** Docker runs what Podman does, by the same words. */
const RUNS = LINES.filter(line => /^podman run /.test(line)).flatMap(line => [
  line,
  line.replace('podman', 'docker'),
])

/** With the engine in place of that of the machine. */
async function type(line: string, engine: ContainerEngine, home: string): Promise<void> {
  const [program, ...words] = line.split(' ') as [string, ...string[]]
  const remote = program === 'podman' ? ['--remote', '--url', engine.url] : []
  await promisify(execFile)(program, [...remote, ...words], {
    cwd: ROOT,
    timeout: LINE_MS_MAX,
    // Without a plug-in of its own, Docker sends the files of a build to its engine.
    env: { PATH: process.env['PATH'], HOME: home, DOCKER_HOST: engine.url, DOCKER_BUILDKIT: '0' },
  })
}

const skipOf = (line: string): string | false => {
  const [program] = line.split(' ') as [string]
  return isInstalled(program) ? false : `${program} is not installed`
}

/** Paths of files, as git writes them. */
function filesOf({ archive }: Build): ReadonlySet<string> {
  const { stdout } = spawnSync('tar', ['-tf', archive], { encoding: 'utf8', maxBuffer: 64 << 20 })
  return new Set(stdout.split('\n').map(path => path.replace(/^\.?\//, '')))
}

t.setTimeout(300_000)

t.test('each line is one of these', async t => {
  t.strictSame(new Set(LINES), new Set([...BUILDS, ...RUNS.filter(line => LINES.includes(line))]))
  t.strictSame(
    BUILDS.map(line => line.split(' ')[0]),
    ['podman', 'docker'],
  )
  t.equal(RUNS.length, 2)
  for (const line of [...BUILDS, ...RUNS.slice(0, 1)])
    t.ok(FILE.includes(line), `the head of the Containerfile says the same: ${line}`)
  const words = RUNS[0]!.split(' ')
  const image = words.indexOf('homing')
  t.strictSame(words.slice(0, image), ['podman', 'run', '-p', '8000:8000'])
  t.equal(parseSettings(routerCommand, words.slice(image + 1), {}).settings.workers.length, 2)
})

for (const line of BUILDS)
  t.test(`${line} sends this repository, and no more than it`, { skip: skipOf(line) }, async t => {
    const engine = await ContainerEngine.start()
    t.teardown(() => engine.stop())
    await type(line, engine, t.testdir({}))
    t.strictSame(engine.unknown, [])
    const [build, ...others] = engine.builds
    t.strictSame(others, [])
    t.match(build!.query.get('dockerfile'), 'Containerfile')
    t.equal(build!.query.get('t')?.split('/').at(-1)?.split(':')[0], 'homing')
    const sent = filesOf(build!)
    for (const path of ['Containerfile', 'package.json', 'pnpm-lock.yaml', 'packages/homing/src/main.ts'])
      t.ok(sent.has(path), path)
    const needless = [...sent].filter(path => /(?:^|\/)(?:node_modules|dist|\.git|\.tap)(?:\/|$)/.test(path))
    t.strictSame(needless, [])
  })

for (const line of RUNS)
  t.test(`${line} runs a router with these workers`, { skip: skipOf(line) }, async t => {
    const engine = await ContainerEngine.start()
    t.teardown(() => engine.stop())
    await type(line, engine, t.testdir({}))
    t.strictSame(engine.unknown, [])
    const [container, ...others] = engine.created
    t.strictSame(others, [])
    const { image, command, ports } = wordsOf(container)
    t.match(image, /(?:^|\/)homing(?::latest)?$/)
    t.strictSame(ports, [[8000, 8000]])
    // What is given takes the place of CMD, behind the ENTRYPOINT, which is `homing router`.
    t.match(FILE, /^ENTRYPOINT \[.*, "router"\]$/m)
    const { settings } = parseSettings(routerCommand, command, {})
    t.equal(settings.workers.length, 2)
    t.match(FILE, new RegExp(`^EXPOSE ${settings.port}$`, 'm'))
  })

interface Container {
  readonly image: string
  readonly command: readonly string[]
  /** Of the container, and of the machine. */
  readonly ports: readonly (readonly [number, number])[]
}

// biome-ignore lint/suspicious/noExplicitAny: as the clients write it
function wordsOf(created: any): Container {
  if (created.image !== undefined) {
    const { image, command, portmappings } = created
    const ports = portmappings.map((one: { container_port: number; host_port: number }) => [
      one.container_port,
      one.host_port,
    ])
    return { image, command, ports }
  }
  const bindings = Object.entries(created.HostConfig.PortBindings as Record<string, { HostPort: string }[]>)
  return {
    image: created.Image,
    command: created.Cmd,
    ports: bindings.map(([port, [host]]) => [Number(port.split('/')[0]), Number(host!.HostPort)]),
  }
}
