/** For tests: a real NATS server on loopback, which can be stopped, killed and started again, empty. */

import { readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import process from 'node:process'
import { connect as connectClient, type JetStreamManager, type Views } from 'nats'
import { freePort } from './free-ports.ts'
import { isInstalled, TestServer } from './test-server.ts'

export { freePort, freePorts } from './free-ports.ts'
export { NO_OPENSSL, type SelfSigned, selfSigned } from './testing-certificates.ts'
export { EtcdServer, NO_ETCD_SERVER } from './testing-etcd.ts'
export { TcpProxy } from './testing-proxy.ts'

const HOST = '127.0.0.1'

/** Why tests that need the server are skipped; false: they are not. For the `skip` of a test. */
export const NO_NATS_SERVER = isInstalled('nats-server') ? false : 'nats-server is not installed'

export interface NatsServerOptions {
  /** Lines of its configuration file, e.g. 'max_payload: 4096'. */
  readonly configuration?: readonly string[]
  /** Keeps streams (JetStream), also over `down` and `up`; lines of its configuration. */
  readonly streams?: readonly string[]
  /** Where they are kept; default: in a folder of its own. */
  readonly streamsFolder?: string
}

function streamLines(folder: string, streams: readonly string[] | undefined): readonly string[] {
  return streams === undefined ? [] : ['jetstream {', `  store_dir: "${folder}"`, ...streams, '}']
}

export class NatsServer extends TestServer {
  readonly port: number

  private constructor(port: number) {
    super('nats-server')
    this.port = port
  }

  static async start({
    configuration = [],
    streams,
    streamsFolder,
  }: NatsServerOptions = {}): Promise<NatsServer> {
    const server = new NatsServer(await freePort())
    const folder = streamsFolder ?? join(server.folder, 'streams')
    writeFileSync(
      join(server.folder, 'nats.conf'),
      [`listen: ${HOST}:${server.port}`, ...configuration, ...streamLines(folder, streams)].join('\n'),
    )
    await server.up()
    return server
  }

  /** 'host:port'. */
  get address(): string {
    return `${HOST}:${this.port}`
  }

  /** CPU that it has used, in milliseconds; 0 where the system does not tell. */
  get cpuMs(): number {
    if (this.processId === undefined || process.platform !== 'linux') return 0
    const fields = readFileSync(`/proc/${this.processId}/stat`, 'utf8').split(') ')[1]!.split(' ')
    // In ticks of 10 ms: utime and stime.
    return 10 * (Number(fields[11]) + Number(fields[12]))
  }

  /** An endpoint there. */
  endpoint(subject: string): string {
    return `nats://${this.address}/${subject}`
  }

  /** Its streams and buckets, as an operator sees them. */
  async manage(): Promise<{
    readonly streams: JetStreamManager
    readonly views: Views
    close(): Promise<void>
  }> {
    const connection = await connectClient({ servers: [this.address] })
    return {
      streams: await connection.jetstreamManager(),
      views: connection.jetstream().views,
      close: () => connection.close(),
    }
  }

  /** Publishes as a foreign process; resolves when the server has read all of it. */
  async say(messages: readonly { readonly subject: string; readonly payload: Uint8Array }[]): Promise<void> {
    const socket = connect(this.port, HOST)
    let answers = ''
    const read = new Promise<void>((resolve, reject) => {
      socket.on('data', data => {
        answers += data.toString()
        if (answers.includes('PONG')) resolve()
      })
      socket.once('error', reject)
      socket.once('close', () => reject(new Error(`the server closed the connection: ${answers}`)))
    })
    socket.write('CONNECT {"verbose": false}\r\n')
    for (const { subject, payload } of messages) {
      socket.write(`PUB ${subject} nobody ${payload.length}\r\n`)
      socket.write(payload)
      socket.write('\r\n')
    }
    socket.write('PING\r\n')
    try {
      await read
    } finally {
      socket.destroy()
    }
  }

  protected override get arguments(): readonly string[] {
    return ['-c', join(this.folder, 'nats.conf')]
  }

  protected override answers(): Promise<boolean> {
    return new Promise(resolve => {
      const socket = connect(this.port, HOST)
      const end = (answer: boolean): void => {
        socket.destroy()
        resolve(answer)
      }
      socket.once('data', data => end(data.toString().startsWith('INFO')))
      socket.once('error', () => end(false))
      socket.once('close', () => end(false))
    })
  }
}
export { isInstalled } from './test-server.ts'
export { EnvoyServer } from './testing-envoy.ts'
export {
  type AskedRequest,
  AskingEnvoy,
  type AskingStream,
  answerIn,
  BODY_MODE,
  commonOf,
  destinationIn,
  type ProcessingRequest,
  type ProcessingResponse,
  pieceIn,
  type StreamEnd,
  setHeaders,
} from './testing-ext-proc.ts'
