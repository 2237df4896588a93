/**
 * Traps: while a simulation runs, real time, real timers and real randomness throw RealWorldError. The code
 * that made the mistake may catch the error, so every case is reported as well.
 */

import { RealWorldError } from './errors.ts'

type Slot = readonly [holder: Record<string, unknown>, name: string, label: string]

const globals = globalThis as unknown as Record<string, unknown>

function slots(): Slot[] {
  const timers = ['setTimeout', 'setInterval', 'setImmediate'].map(name => [globals, name, name] as const)
  return [
    ...timers,
    [Date as never, 'now', 'Date.now'],
    [Math as never, 'random', 'Math.random'],
    [performance as never, 'now', 'performance.now'],
    [crypto as never, 'getRandomValues', 'crypto.getRandomValues'],
    [crypto as never, 'randomUUID', 'crypto.randomUUID'],
  ]
}

const RealDate = Date

/** Runs `use` with the traps set; `report` gets each call of something real. */
export function withTraps<T>(report: (error: RealWorldError) => void, use: () => T): T {
  const all = slots()
  const before = all.map(([holder, name]) => Object.getOwnPropertyDescriptor(holder, name))
  const trap = (label: string) => (): never => {
    const error = new RealWorldError(label)
    report(error)
    throw error
  }
  for (const [holder, name, label] of all) {
    Object.defineProperty(holder, name, { value: trap(label), configurable: true, writable: true })
  }
  globals['Date'] = trappedDate(trap('Date without a time'))
  try {
    return use()
  } finally {
    globals['Date'] = RealDate
    all.forEach(([holder, name], position) => {
      const descriptor = before[position]
      if (descriptor === undefined) delete holder[name]
      else Object.defineProperty(holder, name, descriptor)
    })
  }
}

/** `new Date(ms)` is arithmetic; `new Date()` looks at the real clock. */
function trappedDate(trap: () => never): DateConstructor {
  return new Proxy(RealDate, {
    construct: (target, given: [], newTarget) =>
      given.length === 0 ? trap() : (Reflect.construct(target, given, newTarget) as Date),
    apply: trap,
  })
}
