/** Bounds of the digests that a replica tells; a booking beyond one of them is told without a digest. */

/** Hashes in the digests of all open bookings: 8 MiB. */
export const DIGEST_HASHES_MAX = 1_048_576
/** Hashes in one digest: prompts of two million blocks have fewer. */
export const DIGEST_LENGTH_MAX = 1024
/** Hashes that one message tells, so that it stays below the 1 MiB of a broker. */
export const MESSAGE_HASHES_MAX = 65_536
