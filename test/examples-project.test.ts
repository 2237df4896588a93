/**
 * The examples of @homing/actor as a stranger has them: the tarballs alone, in an empty folder. The programs
 * run as they stand, and as what plain tsc makes of them under strict settings, with declarations; installed
 * by npm, by pnpm, and unpacked by hand, which needs no registry.
 */

import { execFile } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import process from 'node:process'
import t, { type Test as Tap } from 'tap'
import { exampleOutputs } from '../packages/actor/test/example-outputs.ts'
import { NO_OLD_NODE, oldNode, TOO_OLD } from '../packages/actor/test/old-node.ts'
import { REGISTRY_AWAY } from './registry.ts'

const ROOT = join(import.meta.dirname, '..')
const TSC = join(ROOT, 'node_modules/.bin/tsc')
/** Packages shared with the workspace: all that @homing/actor needs. */
const PACKAGES = ['actor', 'base'] as const

interface Outcome {
  readonly exitCode: number
  readonly output: string
}

/**
 * What a program may leave to inference: its declarations have to name types of packages that only ours
 * depends on.
 */
const INFERRED = `
import { createActorSystem } from '@homing/actor'
import { createSimulation } from '@homing/actor/simulation'
import { createTestSystem, recordingLog } from '@homing/actor/testing'

export const start = () => createActorSystem({ pools: { core: { count: 2 } } })
export const system = createTestSystem()
export const { clock } = system
export const probe = system.probe()
export const log = recordingLog()
export const simulate = () => createSimulation({ seed: 1 })
export const timeOf = async () => (await simulate()).clock
`

/**
 * Each entry of the package, from plain JavaScript and from TypeScript, and an actor on a thread of its own.
 */
const FOR_LAYOUT: ReadonlySet<string> = new Set(['hello.js', 'own-actor.ts', 'timers.ts', 'seeds.ts'])

const tarballs = newFolder('tarballs')
t.setTimeout(900_000)

const built = await run(process.execPath, [join(ROOT, 'test/build.ts'), '--pack', tarballs], ROOT)
t.equal(built.exitCode, 0, built.output)
const tarballOf = (name: string): string =>
  join(tarballs, readdirSync(tarballs).find(file => file.startsWith(`homing-${name}-`))!)

/**
 * How the packages come into the folder of the project; undefined where a registry is needed, and none can be
 * had.
 */
const installers: Readonly<Record<string, (folder: string) => Promise<Outcome>>> = {
  async 'by hand'(folder) {
    const modules = join(folder, 'node_modules')
    for (const name of PACKAGES) {
      const target = join(modules, '@homing', name)
      mkdirSync(target, { recursive: true })
      const unpacked = await run(
        'tar',
        ['-xzf', tarballOf(name), '-C', target, '--strip-components=1'],
        folder,
      )
      if (unpacked.exitCode !== 0) return unpacked
    }
    // The only external dependency, with its own dependencies beside it.
    const pino = dirname(realpathSync(join(ROOT, 'packages/base/node_modules/pino')))
    for (const name of readdirSync(pino)) {
      if (!name.startsWith('.')) symlinkSync(join(pino, name), join(modules, name))
    }
    return { exitCode: 0, output: '' }
  },
  npm(folder) {
    const flags = ['--no-audit', '--no-fund', '--prefer-offline', '--fetch-retries=0', '--omit=dev']
    return run('npm', ['install', ...flags, ...PACKAGES.map(tarballOf)], folder)
  },
  pnpm(folder) {
    // A tarball asks for the others by version: they are to be these.
    const overrides = PACKAGES.map(name => `  '@homing/${name}': file:${tarballOf(name)}\n`)
    writeFileSync(join(folder, 'pnpm-workspace.yaml'), `overrides:\n${overrides.join('')}`)
    return run(
      'npx',
      ['--yes', 'pnpm@10', 'install', '--prod', '--prefer-offline', '--fetch-retries=0'],
      folder,
    )
  },
}

let isUnreachable = false
for (const [name, install] of Object.entries(installers)) {
  await t.test(`installed ${name}: programs run, compile under strict settings, and run again`, async t => {
    const folder = await project(name.replace(' ', '-'))
    // Where npm reaches no registry that it trusts, pnpm waits for minutes instead of saying so.
    const installed = isUnreachable ? undefined : await install(folder)
    isUnreachable ||= (installed?.exitCode ?? 0) !== 0 && REGISTRY_AWAY.test(installed!.output)
    if (installed === undefined || isUnreachable) {
      t.pass('the packages are installed', { skip: 'the registry cannot be reached' })
      return
    }
    t.equal(installed.exitCode, 0, installed.output)
    t.equal(Object.keys(exampleOutputs).length, 13)
    const all = Object.entries(exampleOutputs)
    // The package is the same for every installation, only what lies beside it differs.
    const programs = name === 'by hand' ? all : all.filter(([program]) => FOR_LAYOUT.has(program))
    t.equal(programs.length, name === 'by hand' ? all.length : FOR_LAYOUT.size)
    await runAll(t, folder, programs)
    writeFileSync(join(folder, 'inferred.ts'), INFERRED)
    // Node's types are looked up where we have them; our own declarations are checked too (no
    // skipLibCheck).
    const types = ['--typeRoots', join(ROOT, 'node_modules/@types')]
    t.strictSame(await run(TSC, ['-p', '.', ...types], folder), { exitCode: 0, output: '' }, 'tsc')
    const compiled = programs.map(
      ([program, output]) => [join('dist', program.replace(/\.ts$/, '.js')), output] as const,
    )
    await runAll(t, folder, name === 'by hand' ? compiled : compiled.slice(0, 2))
    t.ok(existsSync(join(folder, 'dist/pool-worker.d.ts')), 'with declarations')
    t.match(readFileSync(join(folder, 'dist/inferred.d.ts'), 'utf8'), /system: .*TestSystem/)
  })
}

t.test('the command of docs/actors.md runs an example where the package is installed', async t => {
  const folder = newFolder('copied')
  t.equal((await installers['by hand']!(folder)).exitCode, 0)
  const page = readFileSync(join(folder, 'node_modules/@homing/actor/docs/actors.md'), 'utf8')
  const [, command] = /^(cp -r node_modules\/@homing\/actor\/examples .*?) +#/m.exec(page) ?? []
  t.match(command, /&& cd examples && node ping-pong\.ts$/)
  const { exitCode, output } = await run(
    'sh',
    ['-c', command!.replace('&& node ', `&& '${process.execPath}' `)],
    folder,
  )
  t.strictSame({ exitCode, output }, { exitCode: 0, output: exampleOutputs['ping-pong.ts'] })
})

const old = oldNode()
t.test(
  'a Node that is too old says so, whatever it imports',
  { skip: old === undefined && NO_OLD_NODE },
  async t => {
    const folder = await project('old')
    t.equal((await installers['by hand']!(folder)).exitCode, 0)
    for (const entry of ['@homing/actor', '@homing/actor/testing', '@homing/actor/simulation']) {
      const { exitCode, output } = await run(
        old!,
        ['--input-type=module', '--eval', `import '${entry}'`],
        folder,
      )
      t.equal(exitCode, 1, entry)
      t.match(output, TOO_OLD, entry)
    }
  },
)

t.test(
  'the tarball stands alone: docs, source maps with their sources, and no link that leads outside',
  async t => {
    const folder = newFolder('unpacked')
    await run('tar', ['-xzf', tarballOf('actor'), '-C', folder, '--strip-components=1'], folder)
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    for (const file of [
      'README.md',
      'docs/actors.md',
      'docs/actor-runtime.md',
      'examples/README.md',
      'examples/package.json',
    ]) {
      t.ok(files.includes(file), file)
    }
    let anchors = 0
    for (const page of files.filter(file => file.endsWith('.md'))) {
      const text = readFileSync(join(folder, page), 'utf8')
      for (const [, path, anchor] of text.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)) {
        const target = path === '' ? join(folder, page) : join(folder, dirname(page), path!)
        if (!existsSync(target) || path!.startsWith('../..')) t.fail(`${page}: ${path}`)
        else if (anchor !== undefined) {
          anchors++
          if (!anchorsOf(readFileSync(target, 'utf8')).includes(anchor)) t.fail(`${page}: ${path}#${anchor}`)
        }
      }
    }
    t.ok(anchors > 0, `${anchors} anchors`)
    const scripts = files.filter(file => file.startsWith('dist/') && file.endsWith('.js'))
    t.ok(scripts.length > 50)
    for (const script of scripts) {
      const { sourcesContent } = JSON.parse(readFileSync(join(folder, `${script}.map`), 'utf8')) as {
        readonly sourcesContent?: readonly (string | null)[]
      }
      if (sourcesContent?.every(source => typeof source === 'string') !== true)
        t.fail(`${script} has no sources`)
    }
  },
)

/** What the headings of a page are linked by, as GitHub and npm make it. */
function anchorsOf(page: string): readonly string[] {
  const text = page.replaceAll(/^```[\s\S]*?^```/gm, '')
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  )
}

/** The folder examples/ of the tarball, and nothing else. */
async function project(name: string): Promise<string> {
  const folder = newFolder(name)
  await run(
    'tar',
    ['-xzf', tarballOf('actor'), '-C', folder, '--strip-components=2', 'package/examples'],
    folder,
  )
  return folder
}

/** Runs programs, two at a time because they mostly wait, and compares what they print. */
async function runAll(
  t: Tap,
  folder: string,
  programs: readonly (readonly [program: string, output: string])[],
): Promise<void> {
  const left = [...programs]
  const lane = async (): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const [program, output] = next
      t.strictSame(await run(process.execPath, [program], folder), { exitCode: 0, output }, program)
    }
  }
  await Promise.all([lane(), lane()])
}

function newFolder(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `homing-examples-${name}-`))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

function run(command: string, args: readonly string[], cwd: string): Promise<Outcome> {
  return new Promise(resolve => {
    execFile(command, args, { cwd, env: environment(), timeout: 300_000 }, (error, stdout, stderr) => {
      const exitCode = error === null ? 0 : typeof error.code === 'number' ? error.code : 1
      const said = (stdout + stderr).replace(/^npm (warn|notice).*\n/gim, '')
      resolve({ exitCode, output: error?.killed ? `${said}ended after 300 s` : said })
    })
  })
}

/** Without what pnpm set for its own scripts. */
function environment(): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {}
  for (const [name, value] of Object.entries(process.env)) {
    if (!/^(npm_(config|package|lifecycle)|pnpm_|NODE_OPTIONS|NODE_PATH)/i.test(name)) env[name] = value
  }
  return { ...env, npm_config_update_notifier: 'false' }
}
