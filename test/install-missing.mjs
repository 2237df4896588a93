/**
 * `node test/install-missing.mjs to-run | to-develop`, the first step of each script of the root, installs
 * what is missing.
 *
 *   to-run       what the programs need: 33 packages
 *   to-develop   all, with what tests, builds and the site need: 500 more
 *
 * What is there is kept: where all is installed, all of it is brought up to date. Plain JavaScript without
 * imports of ours: it runs on the Node that runs pnpm, before anything is installed. pnpm could look by
 * itself (`verifyDepsBeforeRun`), but would install everything for every script.
 *
 * The scripts want Node NODE_MIN or later, which runs TypeScript as it stands. It is one of the packages,
 * where npm has it for this machine; where it has none, or that does not run here, the Node that runs this
 * must do. `pnpm start` runs it by the link NODE, without the shell script that pnpm makes for a program of a
 * package: of Ctrl-C the shell dies at once, and pnpm would call the orderly end of the router a failure.
 *
 * Standard output belongs to the script that follows, so pnpm's goes to standard error.
 */

import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, readlinkSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
/** What pnpm wrote when it was done: when, the folders of the workspace, and which kinds of packages. */
const STATE = join(ROOT, 'node_modules', '.pnpm-workspace-state-v1.json')
const MODULES = join(ROOT, 'node_modules', '.modules.yaml')

/** A link to the Node that runs the scripts. */
const NODE = join(ROOT, 'node_modules', '.node', 'node')
const NODE_MIN = [24, 12]
/** A package of the root, if npm has it for this machine. */
const NODE_PACKAGE = `node-${process.platform}-${process.arch}`

const isForAll = process.argv[2] === 'to-develop'
const installed = whatIsInstalled()
if (!installed.isComplete || (isForAll && !installed.isAll)) {
  process.exitCode = install(isForAll || installed.isAll)
}
if (!process.exitCode) process.exitCode = linkNode()

/** Which kinds of packages are there, and whether all of these are. */
function whatIsInstalled() {
  let isAll = false
  try {
    isAll = JSON.parse(readFileSync(MODULES, 'utf8')).included.devDependencies === true
    const { lastValidatedTimestamp, projects, filteredInstall } = JSON.parse(readFileSync(STATE, 'utf8'))
    const manifests = Object.keys(projects).map(folder => join(folder, 'package.json'))
    const written = [join(ROOT, 'pnpm-lock.yaml'), join(ROOT, 'pnpm-workspace.yaml'), ...manifests]
    const isOutdated = written.some(path => statSync(path).mtimeMs > lastValidatedTimestamp)
    return { isAll, isComplete: filteredInstall !== true && !isOutdated }
  } catch {
    // Nothing is there, or not to the end; or a folder of the workspace was renamed since, or the clone
    // moved.
    return { isAll, isComplete: false }
  }
}

function install(isAll) {
  // Where only the programs' packages are, pnpm makes the folder anew for all of them, and would ask first:
  // it refuses without a terminal.
  const words = ['install', '--config.confirmModulesPurge=false', ...(isAll ? [] : ['--prod'])]
  const { command, first, needsShell } = pnpm()
  const { status, error } = spawnSync(command, [...first, ...words], {
    cwd: ROOT,
    stdio: ['inherit', 2, 2],
    shell: needsShell,
  })
  if (error) console.error(`cannot install what is missing: ${error.message}`)
  return status ?? 1
}

/** Links the Node that runs the scripts; 1: there is none. */
function linkNode() {
  const packaged = join(ROOT, 'node_modules', NODE_PACKAGE, 'bin', 'node')
  if (linked() === packaged) return 0
  const program = isNewEnough(versionOf(packaged))
    ? packaged
    : isNewEnough(process.versions.node)
      ? process.execPath
      : undefined
  if (program === undefined) {
    console.error(
      `cannot run on Node ${process.versions.node}: Node ${NODE_MIN.join('.')} or later is needed, and npm has none that runs on ${process.platform}-${process.arch}: install it from https://nodejs.org`,
    )
    return 1
  }
  if (linked() === program) return 0
  mkdirSync(dirname(NODE), { recursive: true })
  rmSync(NODE, { force: true })
  try {
    symlinkSync(program, NODE)
  } catch (error) {
    // Another script was faster.
    if (error.code !== 'EEXIST') throw error
  }
  return 0
}

function linked() {
  try {
    return readlinkSync(NODE)
  } catch {
    return undefined
  }
}

/** Undefined: it is not there, or does not run on this machine. */
function versionOf(program) {
  const { status, stdout } = spawnSync(program, ['-p', 'process.versions.node'], { encoding: 'utf8' })
  return status === 0 ? stdout.trim() : undefined
}

function isNewEnough(version) {
  if (version === undefined) return false
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1])
}

/** The pnpm that runs this, a program of its own or one for Node; without one, what npx brings. */
function pnpm() {
  const path = process.env.npm_execpath
  if (path === undefined || !/pnpm/.test(path))
    return { command: 'npx', first: ['--yes', 'pnpm@10'], needsShell: process.platform === 'win32' }
  return /\.[cm]?js$/.test(path)
    ? { command: process.execPath, first: [path], needsShell: false }
    : { command: path, first: [], needsShell: false }
}
