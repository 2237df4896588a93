/** The file of `--router-policy-config`, read and checked before anything is started. */

import { readFile } from 'node:fs/promises'
import { SettingsError } from '@homing/config'
import { BadPolicyClassesError, type PolicyFile, parsePolicyClasses, type QueueOrder } from '@homing/queue'

/** Rejects with SettingsError for all faults of the file at once, each with its line. `order`: of classes that name none. */
export async function loadPolicyClasses(path: string, order: QueueOrder): Promise<PolicyFile> {
  const named = `--router-policy-config ${JSON.stringify(path)}`
  const text = await readFile(path, 'utf8').catch((thrown: Error) => {
    throw new SettingsError('router', [`${named} cannot be read: ${thrown.message}`])
  })
  try {
    return parsePolicyClasses(text, path, order)
  } catch (thrown) {
    if (!(thrown instanceof BadPolicyClassesError)) throw thrown
    throw new SettingsError(
      'router',
      thrown.faults.map(fault => `${named}: ${fault}`),
    )
  }
}
