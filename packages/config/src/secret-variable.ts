/**
 * Secrets in the environment: variables that are no settings, since no page or log may show what they hold.
 */

/** The API key of engines that name none of their own. */
export const ENGINE_KEY_VARIABLE = 'HOMING_ENGINE_API_KEY'

/**
 * What a variable holds that an operator has named as the place of a secret; undefined: it is not set, or
 * empty.
 */
export function secretVariable(name: string): string | undefined {
  return process.env[name] || undefined
}
