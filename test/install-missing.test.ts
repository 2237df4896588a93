/** The first step of every script, with a pnpm that only writes down what it is asked for. */

import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, readlinkSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import t from 'tap'

const SCRIPT = join(import.meta.dirname, 'install-missing.mjs')
const PNPM = `
import { writeFileSync } from 'node:fs'
writeFileSync('asked', process.argv.slice(2).join(' ').replace(' --config.confirmModulesPurge=false', ''))
console.log('Done')
process.exitCode = Number(process.env.PNPM_EXIT ?? 0)
`
const BUILT_S = 1_000_000

interface Case {
  readonly title: string
  readonly script: 'to-run' | 'to-develop'
  /** What is installed. */
  readonly installed?: 'programs' | 'all'
  readonly isOutdated?: boolean
  /** Undefined: pnpm is not run. */
  readonly asked: string | undefined
}

const CASES: readonly Case[] = [
  { title: 'a fresh clone, to run', script: 'to-run', asked: 'install --prod' },
  { title: 'a fresh clone, to develop', script: 'to-develop', asked: 'install' },
  { title: 'what runs is there, to run', script: 'to-run', installed: 'programs', asked: undefined },
  { title: 'what runs is there, to develop', script: 'to-develop', installed: 'programs', asked: 'install' },
  { title: 'all is there, to run', script: 'to-run', installed: 'all', asked: undefined },
  { title: 'all is there, to develop', script: 'to-develop', installed: 'all', asked: undefined },
  {
    title: 'what runs is out of date',
    script: 'to-run',
    installed: 'programs',
    isOutdated: true,
    asked: 'install --prod',
  },
  {
    title: 'all is out of date, and stays all',
    script: 'to-run',
    installed: 'all',
    isOutdated: true,
    asked: 'install',
  },
]

for (const { title, script, installed, isOutdated = false, asked } of CASES) {
  t.test(title, async t => {
    const folder = project(t, installed, isOutdated)
    const { status, stdout } = runScript(folder, script)
    t.equal(status, 0)
    t.equal(stdout, '', 'standard output is for the script that follows')
    t.equal(whatWasAsked(folder), asked)
  })
}

t.test('an install that was cut off begins anew', async t => {
  const folder = project(t, 'all', false)
  rmSync(join(folder, 'node_modules', '.modules.yaml'))
  t.equal(runScript(folder, 'to-develop').status, 0)
  t.equal(whatWasAsked(folder), 'install')
})

t.test('what is all there stays all', async t => {
  const gone = project(t, 'all', false)
  rmSync(join(gone, 'packages'), { recursive: true })
  t.equal(runScript(gone, 'to-run').status, 0)
  t.equal(whatWasAsked(gone), 'install', 'where a folder of the workspace is gone')
})

t.test('an install of some folders is not complete', async t => {
  const folder = project(t, 'all', false, { filteredInstall: true })
  t.equal(runScript(folder, 'to-run').status, 0)
  t.equal(whatWasAsked(folder), 'install')
})

t.test(
  'a pnpm that is a program of its own is run as one',
  { skip: process.platform === 'win32' },
  async t => {
    const folder = project(t, undefined, false)
    const program = join(folder, 'pnpm')
    writeFileSync(program, `#!/bin/sh\necho "$@" > asked\n`, { mode: 0o755 })
    t.equal(runScript(folder, 'to-run', { npm_execpath: program }).status, 0)
    t.equal(whatWasAsked(folder), 'install --config.confirmModulesPurge=false --prod\n')
  },
)

t.test('a failed install ends the script', async t => {
  t.equal(runScript(project(t, undefined, false), 'to-run', { PNPM_EXIT: '3' }).status, 3)
})

t.test('the Node of the packages runs the scripts, where it runs at all', async t => {
  const folder = project(t, 'all', false)
  const link = join(folder, 'node_modules/.node/node')
  t.equal(runScript(folder, 'to-run').status, 0)
  t.equal(readlinkSync(link), process.execPath, 'without a package, the one that runs this')
  const packaged = join(folder, `node_modules/node-${process.platform}-${process.arch}/bin/node`)
  mkdirSync(dirname(packaged), { recursive: true })
  for (const [script, wanted] of [
    ['exit 1', process.execPath],
    ['echo 24.11.9', process.execPath],
    ['echo 24.12.0', packaged],
  ] as const) {
    writeFileSync(packaged, `#!/bin/sh\n${script}\n`, { mode: 0o755 })
    t.equal(runScript(folder, 'to-run').status, 0)
    t.equal(readlinkSync(link), wanted, script)
  }
})

t.test('an old Node without a newer one in the packages is a fault that says what would do', async t => {
  const folder = project(t, 'all', false)
  writeFileSync(
    join(folder, 'old.cjs'),
    `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '22.22.0' } })`,
  )
  const { status, stderr } = runScript(folder, 'to-run', { NODE_OPTIONS: `--require ${folder}/old.cjs` })
  t.equal(status, 1)
  t.match(stderr, /cannot run on Node 22\.22\.0: Node 24\.12 or later is needed, .* install it from https:/)
})

t.test('every script begins with it, and only the start does with less', async t => {
  const { scripts } = JSON.parse(readFileSync(join(import.meta.dirname, '../package.json'), 'utf8')) as {
    scripts: Record<string, string>
  }
  for (const [name, line] of Object.entries(scripts))
    t.match(line, `node test/install-missing.mjs ${name === 'start' ? 'to-run' : 'to-develop'} && `, name)
})

function project(
  t: { testdir(): string },
  installed: Case['installed'],
  isOutdated: boolean,
  change: object = {},
): string {
  const folder = t.testdir()
  for (const name of ['test', 'node_modules', 'packages/a'])
    mkdirSync(join(folder, name), { recursive: true })
  cpSync(SCRIPT, join(folder, 'test/install-missing.mjs'))
  writeFileSync(join(folder, 'pnpm.mjs'), PNPM)
  for (const name of ['pnpm-lock.yaml', 'pnpm-workspace.yaml', 'packages/a/package.json']) {
    writeFileSync(join(folder, name), '')
    utimesSync(join(folder, name), BUILT_S, BUILT_S)
  }
  if (isOutdated) utimesSync(join(folder, 'pnpm-lock.yaml'), BUILT_S + 2, BUILT_S + 2)
  if (installed === undefined) return folder
  const state = {
    lastValidatedTimestamp: (BUILT_S + 1) * 1000,
    projects: { [join(folder, 'packages/a')]: {} },
    filteredInstall: false,
    ...change,
  }
  writeFileSync(join(folder, 'node_modules/.pnpm-workspace-state-v1.json'), JSON.stringify(state))
  const modules = { included: { dependencies: true, devDependencies: installed === 'all' } }
  writeFileSync(join(folder, 'node_modules/.modules.yaml'), JSON.stringify(modules))
  return folder
}

function runScript(folder: string, script: Case['script'], env: NodeJS.ProcessEnv = {}) {
  return spawnSync(process.execPath, [join(folder, 'test/install-missing.mjs'), script], {
    env: { ...process.env, npm_execpath: join(folder, 'pnpm.mjs'), ...env },
    encoding: 'utf8',
  })
}

function whatWasAsked(folder: string): string | undefined {
  try {
    return readFileSync(join(folder, 'asked'), 'utf8')
  } catch {
    return undefined
  }
}
