/**
 * Named ranks: the numbers that an engine gives to its data-parallel ranks.
 *
 * A server behind a load balancer of its own has some of the ranks of a larger engine, and names them as the
 * engine does: 4 to 7. Requests count the ranks of each server from 0, and so do worker keys.
 */

/**
 * The number, among those that the engine names, of rank `dpRank` of a worker with `ranks` ranks; undefined:
 * it names none for it. If a number is too large for the worker, the numbers are taken in their order.
 */
export function namedRank(named: Iterable<number>, dpRank: number, ranks: number): number | undefined {
  const numbers = [...new Set(named)].sort((a, b) => a - b)
  const isOfLargerEngine = numbers.at(-1)! >= ranks
  if (isOfLargerEngine) return numbers[dpRank]
  return numbers.includes(dpRank) ? dpRank : undefined
}
