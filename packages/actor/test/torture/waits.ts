/** The waits of a torture run, with their limits. */

export const ANSWER_MS_MAX = 60_000
/** An ask may settle this much after its deadline: main may be waiting for a core. */
export const LATE_MS_MAX = 20_000
export const ALIVE_MS_MAX = 120_000
export const QUIET_MS_MAX = 60_000
export const PUMP_MS = 2

export function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}

/** Rejects when the promise has not settled in time. */
export async function bounded<T>(promise: Promise<T>, limitMs: number, what: string): Promise<T> {
  const limit = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => limit.reject(new Error(`${what} did not come within ${limitMs} ms`)),
    limitMs,
  )
  try {
    return await Promise.race([promise, limit.promise])
  } finally {
    clearTimeout(timer)
  }
}
