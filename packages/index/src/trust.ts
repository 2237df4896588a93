/**
 * How far the index can be believed about a worker key. `exact`: every block that it lists is held,
 * and none is missing. `partial`: every listed block is held, but older blocks may be missing. `approximate`:
 * guessed from routing history. `none`: nothing is known.
 */
export type Trust = (typeof TRUSTS)[number]

/** From all to nothing. */
export const TRUSTS = ['exact', 'partial', 'approximate', 'none'] as const
