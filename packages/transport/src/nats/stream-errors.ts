/** Stream errors: what the nats package throws, as StreamError. */

import { systemClock } from '@homing/base'
import { StreamError } from '../errors.ts'

/** A broker that is asked answers within this time. */
export const ANSWER_MS_MAX = 2000

/** Runs it; what fails is a StreamError, which begins with `what`. */
export async function asStreamError<T>(what: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run()
  } catch (error) {
    throw streamErrorOf(what, error)
  }
}

/** The same for what is thrown elsewhere. */
export function streamErrorOf(what: string, error: unknown): StreamError {
  if (error instanceof StreamError) return error
  return new StreamError(what, reasonOf(error as PackageError), isTooLarge(error as PackageError))
}

/** Several questions, whose answers take no longer together. What comes later means nothing. */
export async function withinMs<T>(msMax: number, run: () => Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = systemClock.after(msMax, () => late.reject(new Error(`no whole answer within ${msMax} ms`)))
  const work = run()
  // It may fail behind the end.
  work.catch(() => {})
  try {
    return await Promise.race([work, late.promise])
  } finally {
    timer.cancel()
  }
}

interface PackageError extends Error {
  readonly code?: string
  /** What the broker says. */
  readonly api_error?: { readonly description?: string; readonly err_code?: number }
}

/** Of the stream (max_msg_size). */
const MESSAGE_TOO_LARGE = 10_054

function isTooLarge({ code, api_error: said }: PackageError): boolean {
  return said?.err_code === MESSAGE_TOO_LARGE || code === 'MAX_PAYLOAD_EXCEEDED'
}

/** The package names some failures by their code alone. */
function reasonOf({ message, code, api_error: said }: PackageError): string {
  if (said?.description !== undefined) return said.description
  if (code === '503' || message === '503')
    return 'the broker keeps no streams (start it with -js), or has none for this'
  if (code === 'TIMEOUT') return `no answer within ${ANSWER_MS_MAX} ms`
  return message
}
