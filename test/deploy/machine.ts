/**
 * A machine for what an operator types as root: systemd is its first process, and what lines write below
 * /etc, /opt, /var/lib, /var/log and /tmp/packs goes to a folder of the test. Its network is that of this
 * machine. machine.sh makes it of Linux namespaces, so it wants root, and is not everywhere.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { isInstalled } from '@homing/transport/testing'
import type { Test } from 'tap'
import { until } from '../system/fleet.ts'

const ROOT = join(import.meta.dirname, '../..')
const SYSTEMD = '/lib/systemd/systemd'
/** Folders that are others there. */
const OWN = ['/etc/', '/opt/', '/var/lib/', '/var/log/', '/tmp/packs/']
const LINE_MS_MAX = 240_000
const START_MS_MAX = 60_000
/** Of a start that shows whether there can be one; it takes 2 s. */
const TRY_MS_MAX = 20_000
/** Makes and removes a control group, in namespaces of its own. */
const PROBE = 'mount -t cgroup2 cgroup /mnt && mkdir /mnt/homing-probe-$PPID && rmdir /mnt/homing-probe-$PPID'
const REMOVE_GROUPS =
  'mount -t cgroup2 cgroup /mnt && { ! [ -d "/mnt/$1" ] || find "/mnt/$1" -depth -type d -exec rmdir {} +; }'

export interface Typed {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Why there can be none here: text for `skip`. Starts one, and ends it. */
export async function noMachine(): Promise<string | false> {
  if (!existsSync(SYSTEMD) || !isInstalled('systemctl')) return 'systemd is not installed'
  // .ci/run allows no skip for this: the checkout can lie elsewhere.
  const hiding = OWN.find(folder => ROOT.startsWith(folder))
  if (hiding !== undefined) return `a checkout below ${hiding} cannot be tested: move it elsewhere`
  const words = ['--mount', '--propagation', 'private', '--pid', '--fork', '--mount-proc', 'sh', '-c', PROBE]
  const { status, stderr, error } = spawnSync('unshare', words, { encoding: 'utf8' })
  if (status !== 0)
    return `no namespaces for a machine of its own: ${stderr?.trim().split('\n').at(-1) || String(error)}`
  const fault = await Machine.tryStart()
  return fault === undefined ? false : `systemd does not come up in namespaces: ${fault}`
}

export class Machine {
  /** Where its folders are here: `${folder}/etc` is its /etc. */
  readonly folder: string
  readonly #outside: ChildProcess
  /** Undefined: not started yet. */
  #systemd: number | undefined

  private constructor(folder: string) {
    this.folder = folder
    this.#outside = spawn(
      'unshare',
      [
        ...['--mount', '--propagation', 'private'],
        ...['sh', join(import.meta.dirname, 'machine.sh'), folder, process.execPath],
      ],
      { stdio: ['pipe', 'ignore', 'pipe'] },
    )
  }

  static async start(t: Test): Promise<Machine> {
    const folder = join(t.testdir({}), 'machine')
    mkdirSync(folder)
    const machine = new Machine(folder)
    t.teardown(() => machine.#end())
    await machine.#up(START_MS_MAX)
    return machine
  }

  /** Why none comes up; undefined: one has. */
  static async tryStart(): Promise<string | undefined> {
    const folder = mkdtempSync(join(tmpdir(), 'homing-machine-'))
    const machine = new Machine(folder)
    try {
      await machine.#up(TRY_MS_MAX)
      return undefined
    } catch (error) {
      return (error as Error).message
    } finally {
      await machine.#end()
      rmSync(folder, { recursive: true, force: true })
    }
  }

  /** Types a line as root, in the folder of this repository. */
  type(line: string): Typed {
    // pnpm's lock names the process that has it, so it runs where processes have the same numbers as here.
    const words = /^np[mx] /.test(line)
      ? ['--target', String(this.#outside.pid), '--mount']
      : ['--target', String(this.#systemd), '--mount', '--pid', '--ipc', '--uts', '--cgroup']
    // A process that enters stands at /.
    const typed = ['sh', '-c', 'cd "$1" && exec sh -c "$2"', 'sh', ROOT, line]
    const { status, stdout, stderr } = spawnSync('nsenter', [...words, ...typed], {
      encoding: 'utf8',
      timeout: LINE_MS_MAX,
    })
    return { status, stdout, stderr }
  }

  /** A property of a unit. */
  show(unit: string, property: string): string {
    return this.type(`systemctl show --value --property ${property} ${unit}`).stdout.trim()
  }

  async #up(msMax: number): Promise<void> {
    let said = ''
    this.#outside.stderr!.setEncoding('utf8').on('data', text => (said += text))
    const isUp = (): true | undefined => {
      if (this.#hasEnded) throw new Error(`machine.sh has ended: ${said.trim()}`)
      this.#systemd ??= systemdOf(this.#outside.pid!)
      if (this.#systemd === undefined) return undefined
      return (
        /^(?:running|degraded)$/.test(this.type('systemctl is-system-running').stdout.trim()) || undefined
      )
    }
    await until('systemd is up', isUp, { msMax, seen: () => said })
  }

  get #hasEnded(): boolean {
    return this.#outside.exitCode !== null || this.#outside.signalCode !== null
  }

  async #end(): Promise<void> {
    const child = this.#outside
    if (!this.#hasEnded) {
      const ended = once(child, 'exit')
      child.stdin!.end()
      await ended
    }
    const words = [
      '--mount',
      '--propagation',
      'private',
      'sh',
      '-c',
      REMOVE_GROUPS,
      'sh',
      `homing-${child.pid}`,
    ]
    // Its processes end behind it, and a group that has one stays.
    await until('its groups are gone', () => spawnSync('unshare', words).status === 0 || undefined)
  }
}

/** The systemd that machine.sh with this pid has started; undefined: not yet. */
function systemdOf(pid: number): number | undefined {
  const [unshare] = childrenOf(pid, 'unshare')
  return unshare === undefined ? undefined : childrenOf(unshare, 'systemd')[0]
}

function childrenOf(pid: number, name: string): readonly number[] {
  const read = (path: string): string => {
    try {
      return readFileSync(path, 'utf8').trim()
    } catch {
      // It has ended.
      return ''
    }
  }
  const children = read(`/proc/${pid}/task/${pid}/children`).split(' ').map(Number)
  return children.filter(child => read(`/proc/${child}/comm`) === name)
}
