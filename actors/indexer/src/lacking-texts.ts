/** Lacking texts: why blocks of a worker key are credited to no worker, for its source and for people. */

import { ADAPTER, EXTRA_KEY, SALT } from '@homing/protocol'

const SEPARATOR_NAMES: readonly (readonly [bit: number, name: string])[] = [
  [SALT, 'a cache salt'],
  [ADAPTER, 'an adapter'],
  [EXTRA_KEY, 'an extra key'],
]

/** For events that name everything that distinguishes equal tokens within one life. */
export const OTHER_LIFE =
  'blocks of equal tokens have several hashes there, and its events name nothing that would keep them apart: they belong to two lives or two engines'

export const TWINS =
  'blocks of equal tokens have several hashes there: something that its events do not name, such as a cache salt, keeps them apart'

export function unknownText(separators: number): string {
  const names = SEPARATOR_NAMES.filter(([bit]) => (separators & bit) !== 0).map(([, name]) => name)
  return `prompts that the router does not know were sent there with ${names.join(', ')}, and the engine's events do not say whose blocks are whose`
}
