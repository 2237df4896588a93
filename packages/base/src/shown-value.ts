/** A value of others in an error or log: as JSON, and no longer than a line. */

const SHOWN_CHARACTERS_MAX = 80

export function shownValue(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value)
  return text.length > SHOWN_CHARACTERS_MAX ? `${text.slice(0, SHOWN_CHARACTERS_MAX)}…` : text
}
