/**
 * The ways to pick one of several candidates: each returns the index of the winner and fills in the chance
 * that each candidate had. Each draws at most one random number, but for `pickOfTwo`, which draws two; none
 * where one candidate is certain.
 */

import type { Random } from '@homing/base'

export function pickUniform(count: number, probability: Float64Array, random: Random): number {
  probability.fill(1 / count, 0, count)
  return count === 1 ? 0 : random.below(count)
}

export function pickCertain(winner: number, count: number, probability: Float64Array): number {
  probability.fill(0, 0, count)
  probability[winner] = 1
  return winner
}

/** Ties uniformly at random. */
export function pickSmallest(
  keys: ArrayLike<number>,
  count: number,
  probability: Float64Array,
  random: Random,
): number {
  let smallest = keys[0]!
  let ties = 1
  let first = 0
  for (let i = 1; i < count; i++) {
    const key = keys[i]!
    if (key < smallest) {
      smallest = key
      ties = 1
      first = i
    } else if (key === smallest) {
      ties++
    }
  }
  if (ties === 1) return pickCertain(first, count, probability)
  let skip = random.below(ties)
  let winner = -1
  for (let i = 0; i < count; i++) {
    const isTied = keys[i] === smallest
    probability[i] = isTied ? 1 / ties : 0
    if (isTied && skip-- === 0) winner = i
  }
  return winner
}

/** The one with the smaller key of two that are drawn at random; the first of them if they are equal. */
export function pickOfTwo(
  keys: ArrayLike<number>,
  count: number,
  probability: Float64Array,
  random: Random,
): number {
  if (count === 1) return pickCertain(0, count, probability)
  const first = random.below(count)
  const second = (first + 1 + random.below(count - 1)) % count
  return pickCertain(keys[second]! < keys[first]! ? second : first, count, probability)
}

/**
 * Chance ∝ exp(−cost / (max − min) / temperature); all equal: uniform. The range makes the temperature free
 * of the scale of the costs.
 */
export function pickSoftmax(
  costs: Float64Array,
  count: number,
  temperature: number,
  probability: Float64Array,
  random: Random,
): number {
  let smallest = costs[0]!
  let largest = smallest
  for (let i = 1; i < count; i++) {
    const cost = costs[i]!
    if (cost < smallest) smallest = cost
    if (cost > largest) largest = cost
  }
  const range = largest - smallest
  if (range === 0) return pickUniform(count, probability, random)
  let sum = 0
  for (let i = 0; i < count; i++) {
    // The largest exponent is 0: the cheapest candidate. Dividing twice keeps the range out of underflow.
    const weight = Math.exp(-(costs[i]! - smallest) / range / temperature)
    probability[i] = weight
    sum += weight
  }
  for (let i = 0; i < count; i++) probability[i]! /= sum
  const drawn = random.next()
  let cumulative = 0
  let last = 0
  for (let i = 0; i < count; i++) {
    if (probability[i] === 0) continue
    cumulative += probability[i]!
    last = i
    if (drawn < cumulative) return i
  }
  // Rounding may leave the sum a little below the number drawn.
  return last
}

/** Index of the smallest key but that of `winner`; −1 when there is no other. */
export function smallestOther(keys: ArrayLike<number>, count: number, winner: number): number {
  let index = -1
  for (let i = 0; i < count; i++) {
    if (i !== winner && (index < 0 || keys[i]! < keys[index]!)) index = i
  }
  return index
}
