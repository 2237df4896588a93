/**
 * Secrets in the environment: these variables are not settings, because no page or log may show their values.
 */

/** The API key of engines that name none of their own. */
export const ENGINE_KEY_VARIABLE = 'HOMING_ENGINE_API_KEY'
/** The API keys that `homing load` sends. */
export const LOAD_KEY_VARIABLE = 'HOMING_LOAD_API_KEY'
export const LOAD_AGAINST_KEY_VARIABLE = 'HOMING_LOAD_AGAINST_API_KEY'

/**
 * What a variable holds that an operator has named as the place of a secret; undefined: it is not set, or
 * empty.
 */
export function secretVariable(name: string): string | undefined {
  return process.env[name] || undefined
}
