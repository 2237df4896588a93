/** What the programs of packages/homing/examples print, over two engines that have computed nothing yet. */

import type { Test } from 'tap'

/** In the order in which they are run. */
export const PATTERNS = ['automatic', 'manual-booking', 'several-routers', 'by-load'] as const

/** `printed`: by pattern. */
export function assertPatternLines(
  t: Test,
  printed: Readonly<Record<(typeof PATTERNS)[number], string>>,
): void {
  const lines = (name: (typeof PATTERNS)[number]) => printed[name].trimEnd().split('\n')
  t.match(lines('automatic'), [/^Generated 20 tokens: \[(\d+, ){19}\d+\]$/])
  t.match(lines('manual-booking'), [/^worker [01] holds 0 blocks$/, 'requests there: 1', 'requests there: 0'])
  t.strictSame(lines('several-routers'), [
    'overlaps: 0 3',
    'router 2 generated 4 tokens, 48 of the prompt cached',
    'still there: 1',
  ])
  const [loads, selected, ...others] = lines('by-load')
  t.match(
    loads,
    /^Worker loads: \[\{"workerId":0,"dpRank":0,"potentialPrefillTokens":74,.*\},\{"workerId":1,.*:10,.*\}\]$/,
  )
  t.equal(selected, 'Selected worker 1 with 10 prefill tokens')
  const generated = others.map(line => /^Generated tokens: \[([\d, ]+)\]$/.exec(line)?.[1])
  t.notOk(generated.includes(undefined), printed['by-load'])
  const count = generated.flatMap(ids => ids?.split(', ') ?? []).length
  t.ok(count > 0 && count <= 20, `${count} tokens`)
}
