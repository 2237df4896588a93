/** For tests: a real etcd server on loopback, which is started again with what it knew. */

import { join } from 'node:path'
import { freePorts } from './free-ports.ts'
import { isInstalled, TestServer } from './test-server.ts'

/** Why tests that need the server are skipped; false: they are not. For the `skip` of a test. */
export const NO_ETCD_SERVER = isInstalled('etcd') ? false : 'etcd is not installed'

export class EtcdServer extends TestServer {
  /** 'http://127.0.0.1:PORT'. */
  readonly url: string
  readonly #peerUrl: string

  private constructor(port: number, peerPort: number) {
    super('etcd')
    this.url = `http://127.0.0.1:${port}`
    this.#peerUrl = `http://127.0.0.1:${peerPort}`
  }

  static async start(): Promise<EtcdServer> {
    const [port, peerPort] = await freePorts(2)
    const server = new EtcdServer(port!, peerPort!)
    await server.up()
    return server
  }

  protected override get arguments(): readonly string[] {
    return [
      ...['--data-dir', join(this.folder, 'data'), '--name', 'test', '--unsafe-no-fsync'],
      ...['--listen-client-urls', this.url, '--advertise-client-urls', this.url],
      ...['--listen-peer-urls', this.#peerUrl, '--initial-advertise-peer-urls', this.#peerUrl],
      ...['--initial-cluster', `test=${this.#peerUrl}`],
      ...['--heartbeat-interval', '10', '--election-timeout', '100'],
    ]
  }

  protected override async answers(): Promise<boolean> {
    try {
      const { status } = await fetch(`${this.url}/health`, { signal: AbortSignal.timeout(1000) })
      return status === 200
    } catch {
      return false
    }
  }
}
