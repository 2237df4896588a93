/**
 * Loads: the shapes of work that a row runs on ours, on the raw means and on a peer alike. Every answer is
 * checked.
 */

const WAIT_MS_MAX = 30_000

/** Answers a + 1, at once or later. */
export type Add = (a: number) => PromiseLike<number> | number

/** Asks one after the other. Microseconds of each. */
export async function askSequentially(add: Add, count: number): Promise<Float64Array> {
  const timesUs = new Float64Array(count)
  for (let n = 0; n < count; n++) {
    const from = performance.now()
    const answer = await add(n)
    timesUs[n] = (performance.now() - from) * 1000
    requireAnswer(n, answer)
  }
  return timesUs
}

/** Asks one after the other, without a clock for each. Asks per second. */
export async function askBackToBack(add: Add, count: number): Promise<number> {
  const from = performance.now()
  for (let n = 0; n < count; n++) requireAnswer(n, await add(n))
  return perSecond(count, from)
}

/** Keeps `width` asks on their way. Asks per second. */
export async function askInFlight(add: Add, width: number, count: number): Promise<number> {
  let asked = 0
  let answered = 0
  const from = performance.now()
  const asker = async (): Promise<void> => {
    while (asked < count) {
      const n = asked++
      requireAnswer(n, await add(n))
      answered++
    }
  }
  await Promise.all(Array.from({ length: width }, asker))
  if (answered !== count) throw new Error(`${answered} answers to ${count} asks`)
  return perSecond(count, from)
}

export interface OpenLoop {
  /** From the moment of the ask; sorted. */
  readonly timesUs: Float64Array
  /** CPU seconds of the process per second. */
  readonly cores: number
}

/** Asks at a fixed rate, whatever the answers do: once a millisecond what is due by then. */
export async function askOpenLoop(add: Add, ratePerS: number, forMs: number): Promise<OpenLoop> {
  const count = Math.floor((ratePerS * forMs) / 1000)
  const timesUs = new Float64Array(count)
  const { promise: ended, resolve, reject } = Promise.withResolvers<void>()
  let asked = 0
  let answered = 0
  const one = async (n: number): Promise<void> => {
    const from = performance.now()
    requireAnswer(n, await add(n))
    timesUs[n] = (performance.now() - from) * 1000
    answered++
    if (answered === count) resolve()
  }
  const cpuBefore = process.cpuUsage()
  const fromMs = performance.now()
  const tick = (): void => {
    const due = Math.min(count, Math.floor(((performance.now() - fromMs) * ratePerS) / 1000))
    while (asked < due) one(asked++).catch(reject)
    if (asked < count) setTimeout(tick, 1)
  }
  tick()
  await ended
  const cores = cpuMs(cpuBefore) / (performance.now() - fromMs)
  return { timesUs: timesUs.sort(), cores }
}

/** CPU time of the process since `before`. */
export function cpuMs(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

export function perSecond(count: number, fromMs: number): number {
  return (count / (performance.now() - fromMs)) * 1000
}

/** After one round of the event loop. */
export function nextTurn(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}

/**
 * Resolves when `isSo`, looked at once in each round of the event loop; rejects when it does not come about.
 */
export async function until(isSo: () => boolean): Promise<void> {
  const fromMs = performance.now()
  while (!isSo()) {
    if (performance.now() - fromMs > WAIT_MS_MAX)
      throw new Error(`${isSo} did not come within ${WAIT_MS_MAX} ms`)
    await nextTurn()
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}

export function requireEqual(what: string, found: number, expected: number): void {
  if (found !== expected) throw new Error(`${what}: ${found}, not ${expected}`)
}

function requireAnswer(a: number, answer: number): void {
  if (answer !== a + 1) throw new Error(`add(${a}) was answered ${answer}`)
}
