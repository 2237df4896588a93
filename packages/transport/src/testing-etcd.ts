/**
 * For tests: a real etcd server on loopback, which can be killed, frozen, and started again with what it
 * knew.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '@homing/base'
import { freePorts } from './free-ports.ts'

const START_MS_MAX = 20_000
const LOOK_MS = 20

/** Why tests that need the server are skipped; false: they are not. For the `skip` of a test. */
export const NO_ETCD_SERVER = spawnSync('etcd', ['--version']).status === 0 ? false : 'etcd is not installed'

export class EtcdServer {
  /** 'http://127.0.0.1:PORT'. */
  readonly url: string
  readonly #peerUrl: string
  readonly #folder = mkdtempSync(join(tmpdir(), 'homing-etcd-'))
  #process: ChildProcess | undefined

  private constructor(port: number, peerPort: number) {
    this.url = `http://127.0.0.1:${port}`
    this.#peerUrl = `http://127.0.0.1:${peerPort}`
  }

  static async start(): Promise<EtcdServer> {
    const [port, peerPort] = await freePorts(2)
    const server = new EtcdServer(port!, peerPort!)
    await server.up()
    return server
  }

  /** Starts it, again if it was stopped, with what it knew. */
  async up(): Promise<void> {
    if (this.#process !== undefined) return
    const child = spawn(
      'etcd',
      [
        ...['--data-dir', join(this.#folder, 'data'), '--name', 'test', '--unsafe-no-fsync'],
        ...['--listen-client-urls', this.url, '--advertise-client-urls', this.url],
        ...['--listen-peer-urls', this.#peerUrl, '--initial-advertise-peer-urls', this.#peerUrl],
        ...[
          '--initial-cluster',
          `test=${this.#peerUrl}`,
          '--heartbeat-interval',
          '10',
          '--election-timeout',
          '100',
        ],
      ],
      { stdio: ['ignore', 'ignore', 'pipe'] },
    )
    let output = ''
    child.stderr.on('data', (data: Buffer) => {
      output = (output + data.toString()).slice(-4000)
    })
    this.#process = child
    for (const fromMs = systemClock.nowMs(); !(await this.#answers()); ) {
      if (child.exitCode !== null || systemClock.nowMs() - fromMs > START_MS_MAX) {
        this.#process = undefined
        child.kill('SIGKILL')
        throw new Error(`cannot start etcd at ${this.url}: ${output}`)
      }
      await new Promise<void>(resolve => systemClock.after(LOOK_MS, resolve))
    }
  }

  async down(): Promise<void> {
    const child = this.#process
    if (child === undefined) return
    this.#process = undefined
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }

  /** Stops reading and writing, as a host that hangs; until `resume`. */
  freeze(): void {
    this.#process?.kill('SIGSTOP')
  }

  resume(): void {
    this.#process?.kill('SIGCONT')
  }

  async stop(): Promise<void> {
    this.resume()
    await this.down()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  async #answers(): Promise<boolean> {
    try {
      const { status } = await fetch(`${this.url}/health`, { signal: AbortSignal.timeout(1000) })
      return status === 200
    } catch {
      return false
    }
  }
}
