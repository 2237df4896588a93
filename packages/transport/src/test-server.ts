/**
 * For tests: a server process on loopback with a folder of its own, which can be stopped, killed, frozen and
 * started again.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, delimiter, join } from 'node:path'
import process from 'node:process'
import { systemClock } from '@homing/base'

const TEST_START_MS_MAX = 120_000
const TEST_LOOK_MS = 20
const STOP_TURNS_MAX = 100_000
const OUTPUT_CHARACTERS_MAX = 4000

/** Looked up, not run: each test that imports a server would pay for a process. */
export function isInstalled(command: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some(folder => {
    try {
      accessSync(join(folder, command), constants.X_OK)
      return true
    } catch {
      // Not in this folder.
      return false
    }
  })
}

export abstract class TestServer {
  protected readonly folder: string
  readonly #command: string
  #process: ChildProcess | undefined

  protected constructor(command: string) {
    this.#command = command
    this.folder = mkdtempSync(join(tmpdir(), `homing-${basename(command)}-`))
  }

  /** Undefined: it does not run. */
  get processId(): number | undefined {
    return this.#process?.pid
  }

  protected abstract get arguments(): readonly string[]
  /** Whether it is there for clients. */
  protected abstract answers(): Promise<boolean>

  /** Starts it, again if it was stopped. */
  async up(): Promise<void> {
    if (this.#process !== undefined) return
    const child = spawn(this.#command, this.arguments, { stdio: ['ignore', 'ignore', 'pipe'] })
    let output = ''
    child.stderr.on('data', (data: Buffer) => {
      output = (output + data.toString()).slice(-OUTPUT_CHARACTERS_MAX)
    })
    this.#process = child
    for (const fromMs = systemClock.nowMs(); !(await this.answers()); ) {
      if (child.exitCode !== null || systemClock.nowMs() - fromMs > TEST_START_MS_MAX) {
        this.#process = undefined
        child.kill('SIGKILL')
        throw new Error(`cannot start ${this.#command} ${this.arguments.join(' ')}: ${output}`)
      }
      await new Promise<void>(resolve => systemClock.after(TEST_LOOK_MS, resolve))
    }
  }

  async down(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#process
    if (child === undefined) return
    this.#process = undefined
    const ended = once(child, 'exit')
    child.kill(signal)
    await ended
  }

  /**
   * Stops reading and writing, as a host that hangs; until `resume`. Resolves when all of its threads have
   * stopped, which is later than the signal; where the system does not tell, at once.
   */
  async freeze(): Promise<void> {
    this.#process?.kill('SIGSTOP')
    for (let turn = 0; turn < STOP_TURNS_MAX && !this.#isStopped(); turn++)
      await new Promise(resolve => setImmediate(resolve))
  }

  #isStopped(): boolean {
    if (this.processId === undefined || process.platform !== 'linux') return true
    const tasks = `/proc/${this.processId}/task`
    const stateOf = (task: string): string =>
      readFileSync(`${tasks}/${task}/stat`, 'utf8').split(') ')[1]!.slice(0, 1)
    return readdirSync(tasks).every(task => stateOf(task) === 'T')
  }

  resume(): void {
    this.#process?.kill('SIGCONT')
  }

  async stop(): Promise<void> {
    this.resume()
    await this.down()
    rmSync(this.folder, { recursive: true, force: true })
  }
}
