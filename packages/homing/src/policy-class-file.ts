/** The file of `--router-policy-config`, read and checked before anything is started. */

import { readFile } from 'node:fs/promises'
import { SettingsError } from '@homing/config'
import { BadPolicyClassesError, type PolicyFile, parsePolicyClasses, type QueueOrder } from '@homing/queue'

const NOT_COUNTED =
  'its thresholds go by prefill tokens, which --no-router-track-prefill-tokens does not count: leave one of them out'

/**
 * Rejects with SettingsError for all faults of the file at once, each with its line. `order`: of classes that
 * name none. `countsPrefill`: thresholds can hold something back.
 */
export async function loadPolicyClasses(
  path: string,
  order: QueueOrder,
  countsPrefill = true,
): Promise<PolicyFile> {
  const named = `--router-policy-config ${JSON.stringify(path)}`
  const text = await readFile(path, 'utf8').catch((thrown: Error) => {
    throw new SettingsError('router', [`${named} cannot be read: ${thrown.message}`])
  })
  try {
    const file = parsePolicyClasses(text, path, order)
    if (!countsPrefill && hasThreshold(file)) throw new SettingsError('router', [`${named}: ${NOT_COUNTED}`])
    return file
  } catch (thrown) {
    if (!(thrown instanceof BadPolicyClassesError)) throw thrown
    throw new SettingsError(
      'router',
      thrown.faults.map(fault => `${named}: ${fault}`),
    )
  }
}

function hasThreshold({ profile, models }: PolicyFile): boolean {
  const profiles = profile === undefined ? [...models.values()] : [profile, ...models.values()]
  return profiles.some(({ classes }) =>
    classes.some(({ busyTokens, busyFraction }) => busyTokens !== undefined || busyFraction !== undefined),
  )
}
