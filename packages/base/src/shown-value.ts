/** A value of others in an error or log: as JSON, and no longer than other foreign texts. */

import { shownText } from './shown-text.ts'

export function shownValue(value: unknown): string {
  return shownText(
    tryJson(value) ?? (isObject(value) ? String(Object.prototype.toString.call(value)) : String(value)),
  )
}

/** Undefined: it has none, as a bigint and what contains itself. */
function tryJson(value: unknown): string | undefined {
  try {
    return JSON.stringify(value)
  } catch {
    return undefined
  }
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null
}
