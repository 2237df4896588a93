/**
 * Capacity search: the highest speed at which a fleet still keeps a tier for 95 % of the requests.
 *
 * From a guess it doubles or halves until it has one speed that is good enough and one, twice as high, that
 * is not; then it halves the interval eight times. So the answer is exact to 1/256 of itself, if more speed
 * never serves better; where it does, the search ends at one of the crossings.
 */

export const CAPACITY_SHARE = 0.95
export const CAPACITY_STEPS = 8
/** Doublings or halvings before the search gives up. */
const BRACKET_STEPS_MAX = 12

export interface Capacity {
  /** The highest speed that was found good; 0 when none was. */
  readonly speed: number
  /** No speed was too high: the true capacity is above. */
  readonly isAtLeast: boolean
  /** Every speed that was tried, with the share inside the tier, in order. */
  readonly tried: readonly { readonly speed: number; readonly share: number }[]
}

/** `shareAt` answers the share of the requests inside the tier at a speed. `guess` > 0. */
export async function searchCapacity(
  guess: number,
  shareAt: (speed: number) => Promise<number>,
): Promise<Capacity> {
  const tried: { speed: number; share: number }[] = []
  const isGood = async (speed: number): Promise<boolean> => {
    const share = await shareAt(speed)
    tried.push({ speed, share })
    return share >= CAPACITY_SHARE
  }

  let good = 0
  let bad = Number.POSITIVE_INFINITY
  if (await isGood(guess)) {
    good = guess
    for (let i = 0; i < BRACKET_STEPS_MAX && bad === Number.POSITIVE_INFINITY; i++) {
      if (await isGood(good * 2)) good *= 2
      else bad = good * 2
    }
  } else {
    bad = guess
    for (let i = 0; i < BRACKET_STEPS_MAX && good === 0; i++) {
      if (await isGood(bad / 2)) good = bad / 2
      else bad /= 2
    }
  }
  if (good === 0 || bad === Number.POSITIVE_INFINITY) {
    return { speed: good, isAtLeast: good > 0, tried }
  }
  for (let i = 0; i < CAPACITY_STEPS; i++) {
    const middle = (good + bad) / 2
    if (await isGood(middle)) good = middle
    else bad = middle
  }
  return { speed: good, isAtLeast: false, tried }
}
