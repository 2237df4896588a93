/**
 * `datetime.now().strftime(format)` as CPython prints it on Linux, in the C locale: engines set no other.
 *
 * The zone is that of this machine. A template that prints seconds is rendered again by the engine, perhaps
 * in the next one: then what is before them is equal. Parts of a second never are, so `%f` is refused, and
 * so are codes that C libraries read differently.
 */

import { RenderingRefusedError } from './errors.ts'

const MONTHS = 'January February March April May June July August September October November December'.split(
  ' ',
)
const WEEKDAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ')
const DAY_MS = 86_400_000

/** Throws RenderingRefusedError; also without a time. */
export function strftime(now: Date | undefined, format: string): string {
  if (now === undefined) throw new RenderingRefusedError('the template prints the date')
  return format.replace(/%(-?)(.?)/gs, (whole, flag: string, name: string) => {
    const field = Object.hasOwn(FIELDS, name) ? FIELDS[name]!(now) : undefined
    if (field === undefined || (flag !== '' && !UNPADDED.has(name)))
      throw new RenderingRefusedError(`the template prints the date as ${whole}`)
    // The GNU library's flag for a number without its padding.
    return flag === '' ? field : field.replace(/^[0 ]+(?=.)/, '')
  })
}

/** Fields that are numbers. */
const UNPADDED: ReadonlySet<string> = new Set('demHIjklMSUVWyuw')

const FIELDS: Readonly<Record<string, (now: Date) => string>> = {
  Y: now => now.getFullYear().toString(),
  y: now => two(now.getFullYear() % 100),
  C: now => two(Math.floor(now.getFullYear() / 100)),
  m: now => two(now.getMonth() + 1),
  d: now => two(now.getDate()),
  e: now => now.getDate().toString().padStart(2),
  j: now => (dayOfYear(now) + 1).toString().padStart(3, '0'),
  B: now => MONTHS[now.getMonth()]!,
  b: now => MONTHS[now.getMonth()]!.slice(0, 3),
  h: now => MONTHS[now.getMonth()]!.slice(0, 3),
  A: now => WEEKDAYS[now.getDay()]!,
  a: now => WEEKDAYS[now.getDay()]!.slice(0, 3),
  w: now => now.getDay().toString(),
  u: now => (now.getDay() || 7).toString(),
  U: now => two(Math.floor((dayOfYear(now) + 7 - now.getDay()) / 7)),
  W: now => two(Math.floor((dayOfYear(now) + 7 - mondays(now)) / 7)),
  G: now => isoWeek(now).year.toString(),
  V: now => two(isoWeek(now).week),
  H: now => two(now.getHours()),
  k: now => now.getHours().toString().padStart(2),
  I: now => two(now.getHours() % 12 || 12),
  l: now => (now.getHours() % 12 || 12).toString().padStart(2),
  M: now => two(now.getMinutes()),
  S: now => two(now.getSeconds()),
  p: now => (now.getHours() < 12 ? 'AM' : 'PM'),
  P: now => (now.getHours() < 12 ? 'am' : 'pm'),
  // A time without a zone.
  z: () => '',
  Z: () => '',
  D: now => strftime(now, '%m/%d/%y'),
  F: now => strftime(now, '%Y-%m-%d'),
  T: now => strftime(now, '%H:%M:%S'),
  R: now => strftime(now, '%H:%M'),
  r: now => strftime(now, '%I:%M:%S %p'),
  c: now => strftime(now, '%a %b %e %H:%M:%S %Y'),
  x: now => strftime(now, '%m/%d/%y'),
  X: now => strftime(now, '%H:%M:%S'),
  n: () => '\n',
  t: () => '\t',
  '%': () => '%',
}

function two(value: number): string {
  return value.toString().padStart(2, '0')
}

/** Days since Monday. */
function mondays(now: Date): number {
  return (now.getDay() + 6) % 7
}

/** From 0; by the calendar, whatever the length of days is. */
function dayOfYear(now: Date): number {
  return (
    (Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()) - Date.UTC(now.getFullYear(), 0)) / DAY_MS
  )
}

/** A week belongs to the year that its Thursday is in. */
function isoWeek(now: Date): { readonly year: number; readonly week: number } {
  const thursday = new Date(Date.UTC(now.getFullYear(), now.getMonth(), now.getDate() - mondays(now) + 3))
  const year = thursday.getUTCFullYear()
  return { year, week: Math.floor((thursday.getTime() - Date.UTC(year, 0)) / DAY_MS / 7) + 1 }
}
