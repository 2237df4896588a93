/** Each planted bug still has its place in the source, and simulations still find planted bugs. */

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { execPath } from 'node:process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { changesOf, PLANTED_BUGS } from './planted-bugs.ts'

const FIND_BUGS = fileURLToPath(new URL('find-bugs.ts', import.meta.url))

/** Cheap to find, one of each scenario: with the seeds that they may take, several times what they took. */
const SAMPLES: ReadonlyMap<string, number> = new Map([
  ['one restart more than the budget allows', 20],
  ['the booking of a client who left is not freed', 5],
  ['a request that leaves the queue keeps its room there', 5],
  ['a lower strict priority goes before a higher one', 60],
])

t.test('what each planted bug changes occurs once in its file', async t => {
  for (const bug of PLANTED_BUGS) {
    for (const { file, right, wrong } of changesOf(bug)) {
      const text = readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')
      t.equal(text.split(right).length - 1, 1, `${bug.what}: ${file}`)
      // A name that is gone would be found at once, for a reason of its own.
      for (const [name] of wrong.matchAll(/this\.#?\w+/g)) t.ok(text.includes(name), `${bug.what}: ${name}`)
    }
  }
})

for (const [sample, seedsMax] of SAMPLES) {
  t.test(`a checker objects: ${sample}`, { timeout: 300_000 }, async t => {
    const number = PLANTED_BUGS.findIndex(({ what }) => what === sample)
    const { status, stdout, stderr } = spawnSync(
      execPath,
      [FIND_BUGS, '--bug', String(number), String(seedsMax)],
      { encoding: 'utf8' },
    )
    t.equal(status, 0, stderr)
    const { seed, why } = JSON.parse(stdout) as { readonly seed?: number; readonly why: string }
    t.comment(`seed ${seed}: ${why}`)
    t.ok(seed !== undefined, `within ${seedsMax} seeds`)
  })
}
