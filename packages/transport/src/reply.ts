/** Collects one small answer of a streaming call; shared by all transports. */

import type { Clock } from '@homing/base'
import { HttpCallError, type HttpCallFailure } from './errors.ts'
import type { HttpCall, HttpHeaders, HttpReply, HttpRequest, HttpResponseHandler } from './http-types.ts'

const REPLY_BYTES_MAX = 16 * 2 ** 20

/** Rejects with HttpCallError. `start` makes the call and must not call its handler before it returns. */
export function collectReply(
  request: HttpRequest,
  options: { readonly timeoutMs: number; readonly maxBytes?: number; readonly signal?: AbortSignal },
  start: (handler: HttpResponseHandler) => HttpCall,
  clock: Clock,
): Promise<HttpReply> {
  const { timeoutMs, maxBytes = REPLY_BYTES_MAX, signal } = options
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(new HttpCallError(request, 'aborted', signal.reason))
    const chunks: Uint8Array[] = []
    let size = 0
    let status = 0
    let headers: HttpHeaders = {}
    let isSettled = false
    const settle = (): boolean => {
      if (isSettled) return false
      isSettled = true
      timer.cancel()
      signal?.removeEventListener('abort', onAbort)
      return true
    }
    const giveUp = (failure: HttpCallFailure, cause?: unknown): void => {
      if (!settle()) return
      call.abort()
      reject(new HttpCallError(request, failure, cause))
    }
    const onAbort = (): void => giveUp('aborted', signal?.reason)
    const timer = clock.after(timeoutMs, () => giveUp('timeout', `no whole answer within ${timeoutMs} ms`))
    signal?.addEventListener('abort', onAbort)
    const call = start({
      head(givenStatus, givenHeaders) {
        status = givenStatus
        headers = givenHeaders
      },
      data(bytes) {
        size += bytes.length
        if (size > maxBytes) giveUp('tooLarge', `the answer has more than ${maxBytes} bytes`)
        else chunks.push(bytes)
      },
      end() {
        if (settle())
          resolve({ status, headers, body: chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks) })
      },
      failed(error) {
        if (settle()) reject(error)
      },
    })
  })
}
