/**
 * Random histories of lives of an engine: see life-history.ts for what must hold.
 *
 *   pnpm exec node test/faults/lives.ts                2,000 histories, on all cores
 *   pnpm exec node test/faults/lives.ts --seed 7       one: its script, and what it breaks
 *     --count N --from N --threads N                   how many, from which seed, on how many threads
 *     --tell                                           of one: what came to whom, and what each then believes
 *     --minutes N                                      begins no further one after so long
 *     --real                                           over sockets of this machine, in real time, 20 at once
 *     --shrink                                         makes each script that breaks a rule as short as it
 *                                                      can be
 *     --without 'last removal+reports'                 leaves ways to deceive out: see DECEITS in
 *                                                      life-script.ts
 */

import process, { argv, stdout } from 'node:process'
import { parseArgs } from 'node:util'
import { type FoundViolation, type LivesOptions, runLives, runRealLives } from './life-fleet.ts'
import { runLife } from './life-history.ts'
import { DECEITS, drawScript, scriptText, without } from './life-script.ts'
import { shrink } from './life-shrink.ts'

const { values } = parseArgs({
  args: argv.slice(2),
  options: {
    seed: { type: 'string' },
    from: { type: 'string', default: '1' },
    count: { type: 'string', default: '2000' },
    threads: { type: 'string' },
    real: { type: 'boolean', default: false },
    tell: { type: 'boolean', default: false },
    minutes: { type: 'string' },
    shrink: { type: 'boolean', default: false },
    without: { type: 'string', default: '' },
  },
})

const left = values.without === '' ? [] : values.without.split('+')
const unknown = left.filter(name => !(DECEITS as readonly string[]).includes(name))
if (unknown.length > 0) {
  throw new Error(`cannot leave out ${unknown.join(', ')}: there is ${DECEITS.join('+')}`)
}

async function tell({ seed, violation }: FoundViolation): Promise<void> {
  stdout.write(`seed ${seed}: ${violation.rule}: ${violation.text}\n`)
  if (!values.shrink) return
  const shrunk = await shrink(without(drawScript(seed), new Set(left)), violation)
  stdout.write(`${scriptText(shrunk.script)}\n=> ${shrunk.violation.rule}: ${shrunk.violation.text}\n\n`)
  if (values.tell) await runLife(shrunk.script, { tell: line => void stdout.write(`${line}\n`) })
}

if (values.seed !== undefined) {
  const seed = Number(values.seed)
  const script = without(drawScript(seed), new Set(left))
  stdout.write(`${scriptText(script)}\n`)
  const { violations, ...figures } = await runLife(script, {
    isReal: values.real,
    ...(values.tell && !values.shrink ? { tell: (line: string) => void stdout.write(`${line}\n`) } : {}),
  })
  for (const violation of violations) await tell({ seed, violation })
  stdout.write(`${violations.length} violations; ${JSON.stringify(figures)}\n`)
  process.exit(violations.length === 0 ? 0 : 1)
}

const startMs = performance.now()
const run = values.real ? (options: LivesOptions) => runRealLives({ ...options, width: 20 }) : runLives
const { violations, slowestMs, ...figures } = await run({
  from: Number(values.from),
  count: Number(values.count),
  left,
  ...(values.minutes === undefined ? {} : { budgetMs: 60_000 * Number(values.minutes) }),
  ...(values.threads === undefined ? {} : { threads: Number(values.threads) }),
  onViolation: ({ seed, violation }) => {
    if (!values.shrink) stdout.write(`seed ${seed}: ${violation.rule}: ${violation.text}\n`)
  },
})
if (values.shrink) for (const found of violations) await tell(found)
const seconds = (performance.now() - startMs) / 1000
stdout.write(
  `${violations.length} violations in ${seconds.toFixed(1)} s, ${(slowestMs / 1000).toFixed(2)} s at most for one; ${JSON.stringify(figures)}\n`,
)
process.exit(violations.length === 0 ? 0 : 1)
