/** For tests: a real Envoy on loopback, with a configuration of the test. */

import { writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { isInstalled, TestServer } from './test-server.ts'

/** Why tests that need it are skipped; false: they are not. For the `skip` of a test. */
export const NO_ENVOY = isInstalled('envoy') ? false : 'envoy is not installed'

export class EnvoyServer extends TestServer {
  readonly #port: number

  private constructor(port: number) {
    super('envoy')
    this.#port = port
  }

  /** `port`: one at which `configuration` has it listen. */
  static async start(port: number, configuration: string): Promise<EnvoyServer> {
    const server = new EnvoyServer(port)
    writeFileSync(join(server.folder, 'envoy.yaml'), configuration)
    await server.up()
    return server
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`
  }

  protected override get arguments(): readonly string[] {
    const file = join(this.folder, 'envoy.yaml')
    return ['-c', file, '--use-dynamic-base-id', '--concurrency', '1', '--log-level', 'error']
  }

  protected override answers(): Promise<boolean> {
    return new Promise(resolve => {
      const socket = connect(this.#port, '127.0.0.1', () => {
        socket.destroy()
        resolve(true)
      })
      socket.once('error', () => resolve(false))
    })
  }
}
