/** Identifies a replica, or one life of its tracker: 16 hexadecimal digits. */

import type { Random } from '@homing/base'

const BYTES = 8

/**
 * Each call returns a new one. `salt`: 16 hexadecimal digits that no other process has. Without it, routers
 * with one seed would draw equal numbers and take each other for themselves.
 */
export function newLife(random: Random, salt = '0'.repeat(2 * BYTES)): string {
  const other = Buffer.from(salt, 'hex')
  return Buffer.from(random.bytes(BYTES).map((byte, i) => byte ^ other[i]!)).toString('hex')
}
