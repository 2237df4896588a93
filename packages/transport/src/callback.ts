/**
 * Callbacks of sockets: how the owners of sockets are called, and what becomes of their errors.
 *
 *   callOwner   about the socket itself. If the owner throws, that is a bug: the error is thrown again from a
 *               microtask, where it reaches the thread's handler of uncaught errors.
 *   callFor     with what a peer sent. If the owner throws, the peer is the culprit: the error is reported
 *               with the peer's name, and the caller takes the peer's message, connection or request out.
 *               All others go on.
 *
 * Until a transport of the system says where reports go, `callFor` throws as `callOwner` does: so the
 * simulated transports of tests do.
 */

/** Gets reports of faults; a `Log` will do. */
interface FaultLog {
  warn(fields: Readonly<Record<string, unknown>>, text: string): void
}

/** A fault is logged at most once in this time, with how many were not logged. */
const FAULT_LOGGED_MS_MIN = 1000
/** Characters of a culprit's name, which may be a peer's own. */
const CULPRIT_CHARACTERS_MAX = 200

let report: ((culprit: string, error: unknown) => void) | undefined
let total = 0

/** How many callbacks on this thread threw at what a peer sent. */
export function callbackFaults(): number {
  return total
}

/** From now on faults of this thread go to `log`. */
export function reportFaultsTo(log: FaultLog, nowMs: () => number): void {
  let loggedMs = Number.NEGATIVE_INFINITY
  let unlogged = 0
  report = (culprit, error) => {
    if (nowMs() - loggedMs < FAULT_LOGGED_MS_MIN) {
      unlogged++
      return
    }
    loggedMs = nowMs()
    log.warn(
      { culprit: culprit.slice(0, CULPRIT_CHARACTERS_MAX), error, unlogged },
      'what a peer sent made a callback fail: the peer is taken out',
    )
    unlogged = 0
  }
}

export function callOwner<A extends readonly unknown[]>(callback: (...args: A) => void, ...args: A): void {
  try {
    callback(...args)
  } catch (error) {
    throwLater(error)
  }
}

/** False: the callback threw, and what `culprit` sent is to be taken out. */
export function callFor<A extends readonly unknown[]>(
  culprit: string,
  callback: (...args: A) => void,
  ...args: A
): boolean {
  try {
    callback(...args)
    return true
  } catch (error) {
    faulted(culprit, error)
    return false
  }
}

/** Reports an error that came of what `culprit` sent. */
export function faulted(culprit: string, error: unknown): void {
  total++
  if (report === undefined) throwLater(error)
  else report(culprit, error)
}

/**
 * To a subscriber. One that cannot take a message hears of a lost connection, so that it asks for what it
 * missed.
 */
export function callSubscriber(
  culprit: string,
  handler: { message(frames: Uint8Array[], number?: number): void; connected(): void; disconnected(): void },
  frames: Uint8Array[],
  number?: number,
): void {
  if (callFor(culprit, () => handler.message(frames, number))) return
  callOwner(() => handler.disconnected())
  callOwner(() => handler.connected())
}

function throwLater(error: unknown): void {
  queueMicrotask(() => {
    throw error
  })
}
