/**
 * Inbox: what the tests of transports wait for: bytes, texts, and what is called back, one by one, with a
 * bound on every wait.
 */

import { createServer } from 'node:net'
import type {
  HttpCallError,
  HttpEnd,
  HttpFailure,
  HttpHeaders,
  HttpRequest,
  Transport,
} from '../src/index.ts'

export const HOST = '127.0.0.1'

export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

export function text(data: Uint8Array | undefined): string {
  return new TextDecoder().decode(data)
}

/** Long enough for a machine that is busy with other tests. */
export const WAIT_MS_MAX = 240_000

/** Rejects after a bound, so that no test waits forever. */
export function bounded<T>(promise: Promise<T>, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`waited ${WAIT_MS_MAX} ms for ${what}`)), WAIT_MS_MAX)
    promise.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

/** Resolves when something holds, looking once a turn: real bytes move while simulated time stands. */
export async function until(holds: () => boolean, what: string): Promise<void> {
  let isGivenUp = false
  const look = async (): Promise<void> => {
    while (!holds() && !isGivenUp) await new Promise(resolve => setImmediate(resolve))
  }
  await bounded(look(), what).finally(() => {
    isGivenUp = true
  })
}

/**
 * A port without a listener; below the ports that systems give to outgoing connections, so it stays unused.
 */
export async function unusedPort(): Promise<number> {
  for (let port = 20_000 + ((process.pid * 89) % 10_000); ; port++) {
    const server = createServer()
    const isFree = await new Promise<boolean>(resolve => {
      server.once('error', () => resolve(false)).listen(port, HOST, () => resolve(true))
    })
    if (!isFree) continue
    await new Promise(resolve => server.close(resolve))
    return port
  }
}

/** What was put in, one by one, waiting for what is not there yet. */
export class Inbox<T> {
  readonly #items: T[] = []
  readonly #waiting: ((item: T) => void)[] = []

  readonly put = (item: T): void => {
    const waiting = this.#waiting.shift()
    if (waiting === undefined) this.#items.push(item)
    else waiting(item)
  }

  get size(): number {
    return this.#items.length
  }

  next(what: string): Promise<T> {
    const item = this.#items.shift()
    if (item !== undefined) return Promise.resolve(item)
    return bounded(new Promise<T>(resolve => this.#waiting.push(resolve)), what)
  }
}

export type Delivered =
  | { readonly type: 'head'; readonly status: number; readonly headers: HttpHeaders }
  | { readonly type: 'data'; readonly bytes: Uint8Array }
  | { readonly type: 'end'; readonly how: HttpEnd }
  | { readonly type: 'failed'; readonly error: HttpCallError; readonly info: HttpFailure }

/** Makes a call whose answer arrives in an inbox. */
export function callInto(transport: Transport, request: HttpRequest) {
  const inbox = new Inbox<Delivered>()
  const call = transport.http.call(request, {
    head: (status, headers) => inbox.put({ type: 'head', status, headers }),
    data: data => inbox.put({ type: 'data', bytes: data }),
    end: how => inbox.put({ type: 'end', how }),
    failed: (error, info) => inbox.put({ type: 'failed', error, info }),
  })
  return { call, inbox }
}
