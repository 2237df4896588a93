/**
 * Shifted clock: loaded into a process before everything else (`--import FILE?ms=3600000`), it sets the wall
 * clock of each of its threads ahead, or back where `ms` is negative. Timers and the monotonic clock go on as
 * they are.
 */

const SystemDate = Date
const shiftMs = Number(new URL(import.meta.url).searchParams.get('ms'))
if (!Number.isInteger(shiftMs) || shiftMs === 0) throw new Error(`cannot shift the clock by ${shiftMs} ms`)

globalThis.Date = new Proxy(SystemDate, {
  construct: (target, given, newTarget) =>
    Reflect.construct(target, given.length === 0 ? [target.now() + shiftMs] : given, newTarget) as Date,
  apply: target => new target(target.now() + shiftMs).toString(),
  get: (target, name, receiver) =>
    name === 'now' ? () => target.now() + shiftMs : (Reflect.get(target, name, receiver) as unknown),
})
