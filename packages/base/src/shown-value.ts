/** A value of others in an error or log: as JSON, and no longer than other foreign texts. */

import { shownText } from './shown-text.ts'

export function shownValue(value: unknown): string {
  return shownText(JSON.stringify(value) ?? String(value))
}
