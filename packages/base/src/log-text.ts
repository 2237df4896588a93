/**
 * Log text: a line of the log for people, as a terminal shows it.
 *
 *   14:14:24 info  directory: worker found worker=127.0.0.1:46481 engine="vllm 0.32.0" ranks=1
 *
 * Time of day where the process runs, level, actor (or thread), text, fields. It is one line whatever the
 * fields hold: values with spaces, quotes or line breaks are written as JSON.
 */

/** What a line says beside its text. */
export type LogFields = Readonly<Record<string, unknown>>

const COLOURS: Readonly<Record<string, number>> = { warn: 33, error: 31, debug: 2, trace: 2 }
const LEVEL_WIDTH = 5
const MAIN = 'main'
/** Control characters and separators of lines; each is one UTF-16 unit here. */
const UNSHOWN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu

/** `line` has `level` and `msg`, and `time` as ISO 8601, unless the line could not be given one. */
export function logText(line: LogFields, isColoured: boolean): string {
  const { level, time, msg, system: _system, thread, actor, ...fields } = line
  const name = String(level)
  const colour = COLOURS[name]
  const padded = name.padEnd(LEVEL_WIDTH)
  const shown = isColoured && colour !== undefined ? `\x1b[${colour}m${padded}\x1b[0m` : padded
  const clock = typeof time === 'string' ? `${timeOfDay(new Date(time))} ` : ''
  const rest = Object.entries(fields).map(([key, value]) => ` ${key}=${valueText(value)}`)
  if (actor !== undefined && thread !== undefined && thread !== MAIN)
    rest.push(` thread=${valueText(thread)}`)
  return `${clock}${shown} ${valueText(actor ?? thread ?? MAIN)}: ${oneLine(String(msg))}${rest.join('')}`
}

function timeOfDay(date: Date): string {
  return [date.getHours(), date.getMinutes(), date.getSeconds()]
    .map(part => String(part).padStart(2, '0'))
    .join(':')
}

function valueText(value: unknown): string {
  if (isErrorRecord(value)) return valueText(`${value.message} [${value.code}]`)
  if (typeof value === 'string' && /^[^\s"=]+$/.test(value)) return oneLine(value)
  return oneLine(JSON.stringify(value) ?? String(value))
}

function isErrorRecord(value: unknown): value is { readonly code: string; readonly message: string } {
  if (typeof value !== 'object' || value === null) return false
  const { code, message } = value as { readonly code?: unknown; readonly message?: unknown }
  return typeof code === 'string' && typeof message === 'string'
}

/** Text from outside must not begin a line of its own, nor steer the terminal. */
function oneLine(text: string): string {
  return text.replace(UNSHOWN, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
