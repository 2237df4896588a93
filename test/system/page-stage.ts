/**
 * A stage for the page: its own files, and sections as a test says them. For states that no small fleet comes
 * into.
 */

import { once } from 'node:events'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type PageFile, PageFiles, type PageSections } from '@homing/page'

export class Stage {
  /** Ends with '/'. */
  readonly url: string
  /** Commands that it received, as 'DELETE /what_if'. */
  readonly told: readonly string[]
  readonly #server: Server
  readonly #streams: Set<ServerResponse>
  readonly #sections: Map<string, unknown>

  private constructor(
    server: Server,
    streams: Set<ServerResponse>,
    sections: Map<string, unknown>,
    told: readonly string[],
  ) {
    this.#server = server
    this.#streams = streams
    this.#sections = sections
    this.told = told
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  }

  static async start(first: Partial<PageSections>): Promise<Stage> {
    const files = await PageFiles.read()
    const streams = new Set<ServerResponse>()
    const sections = new Map<string, unknown>(Object.entries({ beat: BEAT, ...first }))
    const told: string[] = []
    const server = createServer((request, answer) => {
      const path = request.url!.slice(1)
      if (request.method !== 'GET') {
        told.push(`${request.method} /${path}`)
        answer.end('{}')
        return
      }
      if (path === 'page/live') {
        answer.writeHead(200, { 'content-type': 'text/event-stream' })
        for (const [name, section] of sections) answer.write(eventOf(name, section))
        streams.add(answer)
        answer.on('close', () => streams.delete(answer))
        return
      }
      const file = path === '' ? files.html : files.get(path.replace(/^page\//, ''))
      if (file === undefined) answer.writeHead(404).end()
      else give(answer, file, files.policy)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new Stage(server, streams, sections, told)
  }

  /** All tabs hear of it; those that come later, too. */
  tell(sections: Partial<PageSections>): void {
    for (const [name, section] of Object.entries(sections)) {
      this.#sections.set(name, section)
      for (const stream of this.#streams) stream.write(eventOf(name, section))
    }
  }

  stop(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }
}

const BEAT: PageSections['beat'] = {
  now: '2026-01-01T12:00:00.000Z',
  life: 'stage',
  tabs: 1,
  tabs_max: 64,
  build_ms: 1,
  interval_ms: 250,
  silent: [],
}

function eventOf(name: string, section: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(section)}\n\n`
}

function give(answer: ServerResponse, { type, bytes }: PageFile, policy: string): void {
  answer.writeHead(200, { 'content-type': type, 'content-security-policy': policy }).end(bytes)
}
