/**
 * `node test/install-missing.mjs to-run | to-develop`, the first step of each script of the root, installs
 * what is missing.
 *
 *   to-run       what the programs need: 34 packages
 *   to-develop   all, with what tests, builds and the site need: 500 more
 *
 * What is there is kept: where all is installed, all of it is brought up to date. Plain JavaScript without
 * imports of ours: it runs on the Node that runs pnpm, before anything is installed. pnpm could look by
 * itself (`verifyDepsBeforeRun`), but would install everything for every script.
 *
 * Standard output belongs to the script that follows, so pnpm's goes to standard error.
 */

import { spawnSync } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
/** What pnpm wrote when it was done: when, the folders of the workspace, and which kinds of packages. */
const STATE = join(ROOT, 'node_modules', '.pnpm-workspace-state-v1.json')
const MODULES = join(ROOT, 'node_modules', '.modules.yaml')

const isForAll = process.argv[2] === 'to-develop'
const installed = whatIsInstalled()
if (!installed.isComplete || (isForAll && !installed.isAll)) {
  process.exitCode = install(isForAll || installed.isAll)
}

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
  const settings = {
    // The `node` package asks npm for its program. That need not look for faults and news as well.
    npm_config_audit: 'false',
    npm_config_fund: 'false',
    npm_config_update_notifier: 'false',
  }
  const { command, first, needsShell } = pnpm()
  const { status, error } = spawnSync(command, [...first, ...words], {
    cwd: ROOT,
    env: { ...process.env, ...settings },
    stdio: ['inherit', 2, 2],
    shell: needsShell,
  })
  if (error) console.error(`cannot install what is missing: ${error.message}`)
  return status ?? 1
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
