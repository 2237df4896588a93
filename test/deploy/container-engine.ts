/**
 * A container engine for the clients of Docker and Podman, as far as `build` and `run` ask one: it takes what
 * is to be built and run, keeps it, and says that it was done. What an engine would do then is in
 * container.test.ts.
 */

import { createWriteStream, mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { pipeline } from 'node:stream/promises'

const ID = 'ab'.repeat(32)
const HEADERS = {
  'api-version': '1.43',
  'builder-version': '1',
  ostype: 'linux',
  'libpod-api-version': '4.3.1',
  'libpod-buildah-version': '1.28.2',
}

export interface Build {
  readonly query: URLSearchParams
  /** The files that the build would have, as an archive of tar. */
  readonly archive: string
}

export class ContainerEngine {
  readonly #server: Server
  readonly #folder = mkdtempSync(join(tmpdir(), 'homing-container-engine-'))
  readonly #attached = new Set<Duplex>()
  readonly #waiting = new Set<ServerResponse>()
  readonly builds: Build[] = []
  /** Bodies of what was created. */
  // biome-ignore lint/suspicious/noExplicitAny: Docker and Podman have forms of their own
  readonly created: any[] = []
  /** What it did not know, as 'GET /path'. */
  readonly unknown: string[] = []

  private constructor() {
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch(error => response.destroy(error))
    })
    this.#server.on('upgrade', (_, socket) => {
      this.#attached.add(socket)
      socket.on('error', () => socket.destroy())
      socket.write(
        'HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n',
      )
    })
  }

  static async start(): Promise<ContainerEngine> {
    const engine = new ContainerEngine()
    await new Promise<void>(resolve => engine.#server.listen(0, '127.0.0.1', resolve))
    return engine
  }

  get url(): string {
    return `tcp://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async stop(): Promise<void> {
    const closed = new Promise<void>(resolve => this.#server.close(() => resolve()))
    this.#server.closeAllConnections()
    for (const socket of this.#attached) socket.destroy()
    await closed
    rmSync(this.#folder, { recursive: true, force: true })
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url!, 'http://engine')
    const path = pathname.replace(/^\/v[\d.]+/, '').replace(/^\/libpod/, '')
    const say = (status: number, body?: object): void => {
      response.writeHead(status, { ...HEADERS, 'content-type': 'application/json' })
      response.end(body === undefined ? undefined : `${JSON.stringify(body)}\n`)
    }
    if (path === '/_ping') say(200)
    else if (path === '/build') {
      const archive = join(this.#folder, `${this.builds.length}.tar`)
      await pipeline(request, createWriteStream(archive))
      this.builds.push({ query: searchParams, archive })
      response.writeHead(200, { ...HEADERS, 'content-type': 'application/json' })
      // Docker's client looks for the sentence, Podman's for the id alone.
      for (const stream of [`Successfully built ${ID.slice(0, 12)}\n`, `${ID}\n`])
        response.write(`${JSON.stringify({ stream })}\n`)
      response.end()
    } else if (path === '/images/pull') say(200, { images: [ID], id: ID })
    else if (/^\/images\/.*\/json$/.test(path)) say(200, { Id: ID, RepoTags: ['homing:latest'], Config: {} })
    else if (/^\/images\/.*\/exists$/.test(path)) say(204)
    else if (path === '/containers/create') {
      this.created.push(JSON.parse(await textOf(request)))
      say(201, { Id: ID, Warnings: [] })
    } else if (/^\/containers\/[^/]+\/json$/.test(path))
      say(200, { Id: ID, State: { Status: 'exited', ExitCode: 0 }, Config: {}, HostConfig: {} })
    else if (/^\/containers\/[^/]+\/wait$/.test(path)) {
      // Docker's client waits before it starts, Podman's afterwards, and wants the number alone.
      if (pathname.includes('/libpod/')) {
        response.writeHead(200, { ...HEADERS, 'content-type': 'application/json' })
        response.end('0\n')
        return
      }
      response.writeHead(200, { ...HEADERS, 'content-type': 'application/json' })
      response.flushHeaders()
      this.#waiting.add(response)
    } else if (path === '/containers/json') {
      response.writeHead(200, { ...HEADERS, 'content-type': 'application/json' })
      response.end('[]\n')
    } else if (/^\/containers\/[^/]+\/start$/.test(path)) {
      say(204)
      this.#ends()
    } else {
      this.unknown.push(`${request.method} ${pathname}`)
      say(404, { message: `there is no ${pathname}`, cause: 'not known here', response: 404 })
    }
  }

  /** The container has run, and said nothing. */
  #ends(): void {
    for (const socket of this.#attached) socket.end()
    for (const response of this.#waiting) response.end(`${JSON.stringify({ StatusCode: 0 })}\n`)
    this.#waiting.clear()
  }
}

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString()
}
