/**
 * `node test/install-missing.mjs to-run | to-develop`, the first step of every script, installs what is missing.
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
if (installed === undefined || installed.isOutdated || (isForAll && !installed.isAll)) {
  process.exitCode = install(isForAll || installed?.isAll === true)
}

/** Undefined: nothing, or not to the end. */
function whatIsInstalled() {
  try {
    const { lastValidatedTimestamp, projects } = JSON.parse(readFileSync(STATE, 'utf8'))
    const { included } = JSON.parse(readFileSync(MODULES, 'utf8'))
    const manifests = Object.keys(projects).map(folder => join(folder, 'package.json'))
    const written = [join(ROOT, 'pnpm-lock.yaml'), join(ROOT, 'pnpm-workspace.yaml'), ...manifests]
    return {
      isAll: included.devDependencies === true,
      isOutdated: written.some(path => statSync(path).mtimeMs > lastValidatedTimestamp),
    }
  } catch {
    return undefined
  }
}

function install(isAll) {
  // Where only the programs' packages are, pnpm makes the folder anew for all of them, and would ask first: it
  // refuses without a terminal.
  const args = ['install', '--config.confirmModulesPurge=false', ...(isAll ? [] : ['--prod'])]
  // Run by pnpm, its own program is known.
  const pnpm = process.env.npm_execpath
  const [command, ...first] = pnpm?.includes('pnpm') ? [process.execPath, pnpm] : ['npx', '--yes', 'pnpm@10']
  const settings = {
    // The `node` package asks npm for its program. That need not look for faults and news as well.
    npm_config_audit: 'false',
    npm_config_fund: 'false',
    npm_config_update_notifier: 'false',
  }
  const { status, error } = spawnSync(command, [...first, ...args], {
    cwd: ROOT,
    env: { ...process.env, ...settings },
    stdio: ['inherit', 2, 2],
  })
  if (error !== undefined) console.error(`cannot install what is missing: ${error.message}`)
  return status ?? 1
}
