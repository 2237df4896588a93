/**
 * The output of `pnpm build` and `pnpm pack` is installed into an empty folder and used there: `homing`
 * alone, with its command; then the other packages beside it, each by a program, and their declarations.
 */

import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import t from 'tap'
import { assertPatternLines, PATTERNS } from './pattern-lines.ts'
import { REGISTRY_AWAY } from './registry.ts'

const ROOT = join(import.meta.dirname, '..')
const VERSION = (
  JSON.parse(readFileSync(join(ROOT, 'packages/homing/package.json'), 'utf8')) as { version: string }
).version

const ADDER = `
import { defineActor, type Message, type Reply } from '@homing/actor'
export interface AdderMessage extends Message { readonly type: 'add'; readonly n: number; readonly reply: Reply<string> }
export const adder = defineActor(import.meta.url, 'adder')<AdderMessage, { readonly start: number }>({
  setup({ thread }, { start }) {
    return { add({ n, reply }) { reply(\`\${start + n} on \${thread}\`) } }
  },
})
`
const PROGRAM = `
import { createActorSystem } from '@homing/actor'
import { adder } from './adder.ts'
const system = await createActorSystem({ logLevel: 'silent', pools: { work: { count: 1 } } })
const ref = system.spawn(adder, { name: 'adder', args: { start: 40 }, thread: 'work-0' })
console.log(await ref.ask({ type: 'add', n: 2 }, { timeout: '4m' }))
await system.shutdown()
`

/** One use of each other package that a program asks for by name. */
const OTHERS = `
import { BlockIndex } from '@homing/index'
import { createPublisher, registerWorker } from '@homing/publisher'
import { encoderPath, loadTokenizer } from '@homing/tokenization'
import { serveTokens } from '@homing/worker'

const index = BlockIndex.create({ capacityBytes: 2 ** 20, workerSlotsMax: 4 })
const hashes = Int32Array.of(1, 0, 2, 0)
console.log(index.store(3, undefined, hashes, hashes, 2), index.blocksHeld(3))

const publisher = await createPublisher({ eventsEndpoint: 'tcp://127.0.0.1:0', blockSizeTokens: 2 })
publisher.stored(undefined, [{ hash: 1n, tokens: [1, 2] }])
await publisher.close(1000)
try {
  registerWorker({ url: 'not a URL', nats: ['nats://127.0.0.1:1'] })
} catch (error) {
  console.log((error as { code?: string }).code)
}

const fixture = new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization'))
console.log(encoderPath(await loadTokenizer(fixture.pathname)).path)

const worker = await serveTokens({
  model: 'm',
  async *generate() {
    yield 1
  },
})
console.log(await fetch(new URL('/health', worker.url)).then(reply => reply.text()))
await worker.close()
`
/** Runs the programs of the tarball, one at a time, over engines of their own; prints what each prints. */
const RUN_PATTERNS = `
import { execFile } from 'node:child_process'
import process from 'node:process'
import { promisify } from 'node:util'
import { startDemoFleet } from 'homing'

const fleet = await startDemoFleet({ demoEngines: 2, demoSpeed: 100, logLevel: 'warn' })
const printed: Record<string, string> = {}
for (const name of process.argv.slice(2)) {
  const argv = [\`patterns/\${name}.ts\`, fleet.model, ...fleet.workers]
  printed[name] = (await promisify(execFile)(process.execPath, argv)).stdout
}
await fleet.stop()
console.log(JSON.stringify(printed))
`
const OTHERS_OUTPUT = 'stored 2\nHOMING_WORKER_BAD_REGISTRATION\nown\n{"status":"ok"}\n'

/** The program of docs/embedding.md, which is installed like any user's. */
const EMBEDDING = /```ts\n\/\/ program\.ts\n(.*?)```\n\n```\n(.*?)```/s.exec(
  readFileSync(join(ROOT, 'docs/embedding.md'), 'utf8'),
)!

interface Outcome {
  readonly exitCode: number
  readonly output: string
}

const tarballs = mkdtempSync(join(tmpdir(), 'homing-tarballs-'))
const folder = mkdtempSync(join(tmpdir(), 'homing-empty-'))
t.teardown(() => {
  for (const path of [tarballs, folder]) rmSync(path, { recursive: true, force: true })
})
t.setTimeout(600_000)

await t.test(
  'every package is built and packed; homing is installed in an empty folder, by itself',
  async t => {
    const built = await run(process.execPath, [join(ROOT, 'test/build.ts'), '--pack', tarballs], ROOT)
    t.equal(built.exitCode, 0, built.output)
    const homing = join(tarballs, `homing-${VERSION}.tgz`)

    writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, type: 'module' }))
    const installed = await install([homing])
    if (installed.exitCode !== 0 && REGISTRY_AWAY.test(installed.output)) {
      rmSync(join(folder, 'node_modules'), { recursive: true, force: true })
      t.pass('packages are installed', { skip: 'the npm registry cannot be reached' })
      return
    }
    t.equal(installed.exitCode, 0, installed.output)
    t.notOk(existsSync(join(folder, 'node_modules/@homing')), 'with no other package of this repository')
  },
)

const skip = existsSync(join(folder, 'node_modules'))
  ? false
  : 'without the npm registry nothing is installed'

t.test('npx homing --version tells the version', { skip }, async t => {
  t.strictSame(await run('npx', ['homing', '--version'], folder), { exitCode: 0, output: `${VERSION}\n` })
})

t.test('an unknown option is one clear line and exit code 2', { skip }, async t => {
  const { exitCode, output } = await run('npx', ['homing', 'router', '--prot', '1'], folder)
  t.equal(exitCode, 2)
  t.match(output, /did you mean --port\?\n$/)
  t.equal(output.trim().split('\n').length, 1, output)
})

t.test('npx homing simulate runs its cells on threads, and keeps them', { skip }, async t => {
  const options = ['--policies', 'product,least-loaded', '--requests', '100', '--speeds', '1', '--seeds', '1']
  const argv = ['homing', 'simulate', '--cache-dir', 'kept', ...options]
  const { exitCode, output } = await run('npx', argv, folder)
  t.equal(exitCode, 0, output)
  t.match(output, /\n {2}least-loaded +\d/)
  const kept = readdirSync(join(folder, 'kept'), { recursive: true }).filter(name =>
    /\.json$/.test(String(name)),
  )
  t.equal(kept.length, 2)
})

t.test('npx homing router serves its demo fleet and drains on SIGTERM', { skip }, async t => {
  const child = spawn(
    'npx',
    ['homing', 'router', '--port', '0', '--demo-engines', '1', '--log-level', 'error'],
    {
      cwd: folder,
      env: environment(),
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    },
  )
  t.teardown(() => killGroup(child))
  const ended = once(child, 'exit')
  const errors: Buffer[] = []
  child.stderr.on('data', (bytes: Buffer) => errors.push(bytes))
  const first = await Promise.race([
    once(createInterface(child.stdout), 'line').then(([line]) => String(line)),
    ended.then(() => 'ended before it was ready'),
  ])
  const ready = /^router ready on (http:\/\/\S+) \(pid (\d+)\)$/.exec(first)
  t.ok(ready, `${first}\n${Buffer.concat(errors)}`)
  if (ready === null) return

  const health = await fetch(`${ready[1]}/health`, { signal: AbortSignal.timeout(240_000) })
  t.equal(health.status, 200)
  const models = await fetch(`${ready[1]}/v1/models`, { signal: AbortSignal.timeout(240_000) })
  const { data } = (await models.json()) as { data: { id: string }[] }
  const answer = await fetch(`${ready[1]}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: data[0]?.id,
      messages: [{ role: 'user', content: 'hello' }],
      max_tokens: 2,
    }),
    signal: AbortSignal.timeout(240_000),
  })
  t.equal(answer.status, 200, await answer.text())
  t.ok(answer.headers.get('x-homing-worker'))
  const page = await fetch(`${ready[1]}/`, {
    headers: { accept: 'text/html' },
    signal: AbortSignal.timeout(240_000),
  })
  t.match(await page.text(), '<!doctype html>')
  for (const path of ['main.ts', 'app.ts', 'page.css', 'vendor/preact.mjs']) {
    const file = await fetch(`${ready[1]}/page/${path}`, { signal: AbortSignal.timeout(240_000) })
    t.equal(file.status, 200, path)
  }
  const complaints = Buffer.concat(errors).toString().split('\n')
  t.same(
    complaints.filter(line => line !== '' && !line.startsWith('npm ')),
    [],
    'nothing is complained about',
  )

  process.kill(Number(ready[2]), 'SIGTERM')
  await ended
  t.notOk(isAlive(Number(ready[2])), 'the router has ended')
})

t.test('the installed router warms up', { skip }, async t => {
  const argv = ['homing', 'router', '--port', '0', '--worker', 'http://127.0.0.1:9', '--warmup-requests', '4']
  const child = spawn('npx', [...argv, '--log-level', 'debug', '--log-format', 'json'], {
    cwd: folder,
    env: environment(),
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
  })
  t.teardown(() => killGroup(child))
  let over: string | undefined
  for await (const line of createInterface(child.stderr)) {
    if (!line.includes('warm-up is over')) continue
    over = line
    break
  }
  t.match(JSON.parse(over ?? '{}'), { requests: 4 })
})

t.test('a program of its own embeds the router', { skip }, async t => {
  writeFileSync(join(folder, 'embedding.ts'), EMBEDDING[1]!)
  const outcome = await run(process.execPath, ['embedding.ts'], folder)
  t.strictSame(outcome, { exitCode: 0, output: EMBEDDING[2]! })
})

t.test('the four patterns of docs/library.md are in it, and do what that page says', { skip }, async t => {
  // Node runs no TypeScript below node_modules.
  cpSync(join(folder, 'node_modules/homing/examples'), join(folder, 'patterns'), { recursive: true })
  t.strictSame(
    readdirSync(join(folder, 'patterns')).toSorted(),
    PATTERNS.map(name => `${name}.ts`).toSorted(),
    'all programs, and no more',
  )
  writeFileSync(join(folder, 'run-patterns.ts'), RUN_PATTERNS)
  const { exitCode, output } = await run(process.execPath, ['run-patterns.ts', ...PATTERNS], folder)
  t.equal(exitCode, 0, output)
  if (exitCode === 0) assertPatternLines(t, JSON.parse(output) as Parameters<typeof assertPatternLines>[1])
})

t.test('the other packages are installed beside it, and each does its work', { skip }, async t => {
  const names = readdirSync(tarballs).filter(name => name !== `homing-${VERSION}.tgz`)
  for (const name of ['actor', 'index', 'publisher', 'tokenization', 'worker'])
    t.ok(names.includes(`homing-${name}-${VERSION}.tgz`), name)
  const installed = await install(
    names.map(name => join(tarballs, name)),
    2,
  )
  t.equal(installed.exitCode, 0, installed.output)
  writeFileSync(join(folder, 'others.ts'), OTHERS)
  t.strictSame(await run(process.execPath, ['others.ts'], folder), { exitCode: 0, output: OTHERS_OUTPUT })
})

t.test('a program of its own spawns an actor on another thread and asks it', { skip }, async t => {
  writeFileSync(join(folder, 'adder.ts'), ADDER)
  writeFileSync(join(folder, 'program.ts'), PROGRAM)
  t.strictSame(await run(process.execPath, ['program.ts'], folder), { exitCode: 0, output: '42 on work-0\n' })
})

t.test('the declarations type-check for a user of the packages', { skip }, async t => {
  const options = [
    '--strict',
    '--noEmit',
    '--module',
    'nodenext',
    '--target',
    'es2024',
    '--allowImportingTsExtensions',
  ]
  // Node's types are looked up where we have them; our own declarations are checked too (no skipLibCheck).
  options.push('--types', 'node', '--typeRoots', join(ROOT, 'node_modules/@types'), '--erasableSyntaxOnly')
  const patterns = PATTERNS.map(name => `patterns/${name}.ts`)
  const programs = ['program.ts', 'others.ts', 'embedding.ts', 'run-patterns.ts', ...patterns]
  const tsc = join(ROOT, 'node_modules/.bin/tsc')
  t.strictSame(await run(tsc, [...options, ...programs], folder), {
    exitCode: 0,
    output: '',
  })
})

/**
 * Asks once, if nothing else is said: without a registry npm would try for minutes, for each package, and
 * goes on without those that it has as tarballs.
 */
function install(files: readonly string[], retries = 0): Promise<Outcome> {
  const flags = ['--no-audit', '--no-fund', '--prefer-offline', `--fetch-retries=${retries}`]
  flags.push('--fetch-retry-mintimeout=200', '--fetch-retry-maxtimeout=1000')
  return run('npm', ['install', ...flags, ...files], folder)
}

function run(command: string, args: readonly string[], cwd: string): Promise<Outcome> {
  return new Promise(resolve => {
    execFile(command, args, { cwd, env: environment(), timeout: 300_000 }, (error, stdout, stderr) => {
      const exitCode = error === null ? 0 : typeof error.code === 'number' ? error.code : 1
      // npm has words of its own for configurations it does not know.
      // A program may warn that this machine stands still.
      const said = (error === null ? stdout : stdout + stderr).replace(/^npm (warn|notice).*\n/gim, '')
      const output = error?.killed ? `${said}ended after 300 s` : said
      resolve({ exitCode, output })
    })
  })
}

/** Without what pnpm set for its own scripts: npm would read it as its configuration and warn. */
function environment(): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {}
  for (const [name, value] of Object.entries(process.env)) {
    if (!/^(npm_(config|package|lifecycle)|pnpm_|NODE_OPTIONS|NODE_PATH)/i.test(name)) env[name] = value
  }
  return { ...env, npm_config_update_notifier: 'false' }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

function killGroup(child: ChildProcess): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
  } catch {
    // It has ended by itself.
  }
}
