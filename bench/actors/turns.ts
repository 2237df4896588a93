/**
 * Turns: several arms do the same work in turn, round after round, in one process. A slow second of the
 * machine then hits all arms: their ratios stay valid although the figures do not.
 */

import { percentile } from '../harness.ts'
import { rounds } from './sizes.ts'

/** What one of them measured in one round, by name. */
export type Figures = Readonly<Record<string, number>>

/** An arm: does `count` pieces of the work. */
export type Side<F extends Figures> = (count: number) => Promise<F>

type Sides = Readonly<Record<string, Side<Figures>>>

/**
 * Of each side the medians over the rounds, which share `count` out among them. A first round is warm-up and
 * not counted.
 */
export async function inTurns<S extends Sides>(
  count: number,
  sides: S,
): Promise<{ [Name in keyof S]: Awaited<ReturnType<S[Name]>> }> {
  const all = new Map<string, Figures[]>()
  for (let round = 0; round <= rounds; round++) {
    for (const [name, side] of Object.entries(sides)) {
      const figures = await side(Math.ceil(count / rounds))
      if (round === 0) all.set(name, [])
      else all.get(name)!.push(figures)
    }
  }
  const medians = [...all].map(([name, figures]) => [name, mediansOf(figures)] as const)
  return Object.fromEntries(medians) as { [Name in keyof S]: Awaited<ReturnType<S[Name]>> }
}

function mediansOf(all: readonly Figures[]): Figures {
  const names = Object.keys(all[0]!)
  const medianOf = (name: string): number =>
    percentile(
      Float64Array.from(all, figures => figures[name]!),
      50,
    )
  return Object.fromEntries(names.map(name => [name, medianOf(name)]))
}
