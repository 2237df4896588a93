/** Figures as people read them. */

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

export function count(value: number): string {
  return whole.format(value)
}

/** 1,234 stays; 1,234,567 becomes 1.23 M. */
export function short(value: number): string {
  if (value < 100_000) return count(value)
  return value < 1e6 ? `${(value / 1e3).toFixed(0)} k` : `${(value / 1e6).toPrecision(3)} M`
}

export function ms(value: number): string {
  const size = Math.abs(value)
  if (size < 0.0005) return '0 ms'
  if (size < 1) return `${value.toFixed(3)} ms`
  if (size < 100) return `${value.toFixed(1)} ms`
  if (size < 1000) return `${value.toFixed(0)} ms`
  return size < 60_000 ? `${(value / 1000).toFixed(2)} s` : duration(value)
}

/** A length of time in one or two units. */
export function duration(value: number): string {
  const seconds = Math.max(0, Math.floor(value / 1000))
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`
}

export function percent(share: number, digits = 1): string {
  return `${(100 * share).toFixed(digits)} %`
}

export function bytes(value: number): string {
  return value < 2 ** 30 ? `${(value / 2 ** 20).toFixed(0)} MiB` : `${(value / 2 ** 30).toFixed(2)} GiB`
}

/** The router's time of day, in the time zone of the browser. */
export function timeOfDay(iso: string): string {
  return new Date(iso).toLocaleTimeString('en-GB')
}

/** Between two times of the router's own clock: the browser's clock may differ. */
export function since(iso: string, now: string | undefined): string {
  return now === undefined ? '' : duration(Date.parse(now) - Date.parse(iso))
}

export function cost(value: number, unit: string): string {
  if (unit === 'ms') return ms(value)
  return `${Math.abs(value) >= 1000 ? count(value) : value.toFixed(2)} ${unit}`
}
