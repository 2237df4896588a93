/** `homing` as a child process, with a bound on every wait. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'

export const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url))
const WAIT_MS_MAX = 240_000

export interface Exit {
  readonly code: number | null
  readonly signal: string | null
  readonly stdout: string
  readonly stderr: string
}

export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>
  /** Instead of node with the command line of homing. */
  readonly nodeArguments?: readonly string[]
}

/** A process that is killed with its test. */
export class RunningCommand {
  readonly child: ChildProcess
  stdout = ''
  stderr = ''
  readonly #changed = new EventTarget()
  readonly #ended: Promise<unknown>

  constructor(t: Test, argv: readonly string[], { env = {}, nodeArguments = [MAIN] }: RunOptions = {}) {
    const inherited = Object.entries(process.env).filter(
      ([name]) => !/^(HOMING_|DYN_|NODE_OPTIONS|TAP)/.test(name),
    )
    this.child = spawn(process.execPath, [...nodeArguments, ...argv], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...Object.fromEntries(inherited), ...env },
    })
    this.child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text
      this.#changed.dispatchEvent(new Event('text'))
    })
    this.child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text
      this.#changed.dispatchEvent(new Event('text'))
    })
    // Closed when no process holds the pipes any more, children of the child included.
    this.#ended = once(this.child, 'close')
    t.teardown(() => this.child.kill('SIGKILL'))
  }

  /** Resolves when it and all that it started have ended. */
  async exit(): Promise<Exit> {
    await bounded(this.#ended, () => `its end; stdout: ${this.stdout}; stderr: ${this.stderr}`)
    const { exitCode: code, signalCode: signal } = this.child
    return { code, signal, stdout: this.stdout, stderr: this.stderr }
  }

  /** Resolves when more was said on standard output or standard error. */
  async changed(): Promise<void> {
    const what = (): string => `more of it; stdout: ${this.stdout}; stderr: ${this.stderr}`
    await bounded(once(this.#changed, 'text'), what)
  }

  /** The first match of `pattern` in standard output. */
  async says(pattern: RegExp): Promise<RegExpExecArray> {
    const search = async (): Promise<RegExpExecArray> => {
      for (;;) {
        const match = pattern.exec(this.stdout)
        if (match !== null) return match
        await once(this.#changed, 'text')
      }
    }
    const ended = this.#ended.then(() => {
      throw new Error(`it has ended; stdout: ${this.stdout}; stderr: ${this.stderr}`)
    })
    return bounded(
      Promise.race([search(), ended]),
      () => `${pattern}; stdout: ${this.stdout}; stderr: ${this.stderr}`,
    )
  }

  /** Where the router, engine or service answers, and its process. */
  async ready(): Promise<{ readonly url: string; readonly port: number; readonly pid: number }> {
    const [, url, pid] = await this.says(
      /^(?:router|engine|indexer|slots|select) ready on (http:\/\/\S+) \(pid (\d+)\)\n/m,
    )
    return { url: url!, port: Number(new URL(url!).port), pid: Number(pid) }
  }
}

/** Runs to the end. */
export async function run(t: Test, argv: readonly string[], options?: RunOptions): Promise<Exit> {
  return new RunningCommand(t, argv, options).exit()
}

async function bounded<T>(promise: Promise<T>, what: () => string): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => reject(new Error(`waited ${WAIT_MS_MAX} ms in vain for ${what()}`)),
    WAIT_MS_MAX,
  )
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
