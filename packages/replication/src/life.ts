/** Identifies a replica, or one life of its tracker: 16 hexadecimal digits. */

import type { Random } from '@homing/base'

const BYTES = 8

/** Each call returns a new one. */
export function newLife(random: Random): string {
  return Buffer.from(random.bytes(BYTES)).toString('hex')
}
