/** What tells one replica, or one life of its tracker, from all others: 16 hexadecimal digits. */

import type { Random } from '@homing/base'

const BYTES = 8

/**
 * Another one at each call. `salt`: 16 hexadecimal digits that no other process has: routers with one seed
 * draw equal numbers, and would take each other for themselves.
 */
export function newLife(random: Random, salt = '0'.repeat(2 * BYTES)): string {
  const other = Buffer.from(salt, 'hex')
  return Buffer.from(random.bytes(BYTES).map((byte, i) => byte ^ other[i]!)).toString('hex')
}
