/** For tests: a real Envoy on loopback, with a configuration of the test. */

import { writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { TestServer } from './test-server.ts'

export class EnvoyServer extends TestServer {
  readonly #port: number

  private constructor(program: string, port: number) {
    super(program)
    this.#port = port
  }

  /** `program`: its command or path. `port`: one at which `configuration` has it listen. */
  static async start(program: string, port: number, configuration: string): Promise<EnvoyServer> {
    const server = new EnvoyServer(program, port)
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
