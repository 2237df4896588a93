/**
 * API watch: one watch request at the API server, as events. It ends by itself: the server closes it after
 * `timeoutSeconds`, or it is aborted when nothing has come for longer than that, as behind a cable that was
 * cut.
 *
 * Bounds  LINE_BYTES_MAX for one event; an unfinished line at the end is dropped, and comes again.
 */

import type { Clock, Timer } from '@homing/base'
import type { HttpHeaders, HttpTransport } from '@homing/transport'
import { type ApiWatchEvent, readApiStatus, readApiWatchLine } from './api-answers.ts'

export const WATCH_LINE_BYTES_MAX = 8 * 2 ** 20
const API_ERROR_BYTES_MAX = 64 * 1024
/** How long a server may be late with the end of a watch. */
const WATCH_LATE_MS = 15_000
const RETRY_AFTER_MS_MAX = 60_000

/** `status` 0: there was no answer, or it broke. */
export interface WatchEnd {
  readonly status: number
  readonly reason: string
  readonly retryAfterMs: number | undefined
}

export interface ApiWatchOptions {
  readonly http: Pick<HttpTransport, 'call'>
  readonly clock: Clock
  readonly origin: string
  /** With the query, but for the time limit. */
  readonly path: string
  readonly headers: HttpHeaders
  readonly timeoutSeconds: number
  /** In order. False: the watch is of no more use. */
  readonly event: (event: ApiWatchEvent) => boolean
}

export class ApiWatch {
  /** Resolves once, with status 200 where the server ended it in good order. */
  readonly ended: Promise<WatchEnd>
  #close!: () => void

  constructor({ http, clock, origin, path, headers, timeoutSeconds, event }: ApiWatchOptions) {
    const { promise, resolve } = Promise.withResolvers<WatchEnd>()
    this.ended = promise
    const text = new TextDecoder()
    let parts: string[] = []
    let waitingBytes = 0
    let status = 0
    let retryAfterMs: number | undefined
    let timer: Timer | undefined
    let isOver = false
    const end = (reason: string, code = status): void => {
      if (isOver) return
      isOver = true
      timer?.cancel()
      resolve({ status: code, reason, retryAfterMs })
      call.abort()
    }
    const wait = (): void => {
      timer?.cancel()
      timer = clock.after(timeoutSeconds * 1000 + WATCH_LATE_MS, () => end('it is silent', 0))
    }
    const take = (bytes: Uint8Array): void => {
      waitingBytes += bytes.length
      const pieces = text.decode(bytes, { stream: true }).split('\n')
      const rest = pieces.pop()!
      for (const piece of pieces) {
        parts.push(piece)
        const line = parts.join('')
        parts = []
        if (line.trim() === '' || event(readApiWatchLine(line))) continue
        end('it was given up')
        return
      }
      if (pieces.length > 0) waitingBytes = rest.length
      if (rest !== '') parts.push(rest)
      if (waitingBytes > WATCH_LINE_BYTES_MAX) end(`one event has more than ${WATCH_LINE_BYTES_MAX} bytes`, 0)
    }
    const call = http.call(
      { origin, method: 'GET', path: `${path}&timeoutSeconds=${timeoutSeconds}`, headers },
      {
        head(code, answer) {
          status = code
          retryAfterMs = retryAfterOf(answer)
        },
        data(bytes) {
          if (isOver) return
          wait()
          if (status === 200) take(bytes)
          else {
            waitingBytes += bytes.length
            if (waitingBytes > API_ERROR_BYTES_MAX) end(`it answers ${status}`)
            else parts.push(text.decode(bytes, { stream: true }))
          }
        },
        end: () =>
          end(
            status === 200
              ? 'it has ended'
              : `it answers ${status}: ${readApiStatus(parts.join('')).message}`,
          ),
        // An answer without length that breaks, breaks after what it has told.
        failed: error => end(error.message, 0),
      },
    )
    this.#close = () => end('it is closed', 0)
    wait()
  }

  close(): void {
    this.#close()
  }
}

/** At most RETRY_AFTER_MS_MAX: a proxy that says a day would keep the router from all changes of that day. */
export function retryAfterOf(headers: HttpHeaders): number | undefined {
  const value = headers['retry-after']
  return typeof value === 'string' && /^\d+$/.test(value)
    ? Math.min(Number(value) * 1000, RETRY_AFTER_MS_MAX)
    : undefined
}
