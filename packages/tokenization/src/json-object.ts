import { shownValue } from '@homing/base'

/** Parsed JSON. */
export type JsonObject = Readonly<Record<string, unknown>>

/** A member that should be a word, as text; String throws for an object with a member `toString`. */
export function wordOf(value: unknown): string {
  return typeof value === 'string' ? value : shownValue(value)
}
