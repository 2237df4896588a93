/**
 * The table of the constants of auto: every row says what the table promises, and no file beside it has
 * constants of its own.
 */

import { readFileSync } from 'node:fs'
import t from 'tap'
import { AUTO_CONSTANTS } from '../src/index.ts'

const DECISION = '../../../docs/decisions/0037-what-auto-weighs.md'
const UNITS = [
  'Classes',
  'Decisions',
  'Exponent',
  'Ln',
  'Log2',
  'Mean prefills',
  'Ms',
  'Observations',
  'Outcomes',
  'Pauses',
  'Periods',
  'Requests',
  'Share',
  'Standard errors',
  'Steps',
  'Sweeps',
  'Times',
  'Tokens',
  'Workers',
]
/** The files whose constants are in the table. */
const USERS = [
  '../src/bounded-mean.ts',
  '../src/engine-book.ts',
  '../src/engine-costs.ts',
  '../src/engine-lessons.ts',
  '../src/engine-slot.ts',
  '../src/learned-values.ts',
  '../src/odd-workers.ts',
  '../src/output-lengths.ts',
  '../src/prefill-costs.ts',
  '../src/unseen-load.ts',
  '../../selection/src/arm-outcomes.ts',
  '../../selection/src/experiment-budget.ts',
  '../../selection/src/guard.ts',
  '../../selection/src/outcome-differences.ts',
  '../../selection/src/policies/auto-terms.ts',
  '../../selection/src/policies/auto.ts',
  '../../selection/src/usual-times.ts',
  '../../selection/src/worker-outcomes.ts',
]
/** Sizes of the code, not numbers that anybody would set otherwise. */
const SIZES = ['FEATURES', 'IMAGE_NUMBERS', 'ROW_NUMBERS', 'IMAGE_FIGURE_MAX']

interface Row {
  readonly name: string
  readonly comment: string
}

function textOf(path: string): string {
  return readFileSync(new URL(path, import.meta.url), 'utf8')
}

function rowsOf(table: string): readonly Row[] {
  return [...table.matchAll(/^ {4}\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n {4}([A-Z][A-Z0-9_]*): /gm)].map(
    found => ({
      name: found[2]!,
      comment: found[1]!.replaceAll(/\s*\n\s*\*?\s*/g, ' ').trim(),
    }),
  )
}

/** What is wrong with the comment of a row; undefined if nothing is. */
function faultOf({ name, comment }: Row, sections: ReadonlySet<string>): string | undefined {
  const parts = /^([A-Z][a-z0-9 ]*)\. (.{20,}) \[([^\]]+)\]$/.exec(comment)
  if (parts === null) return `${name} is not "Unit. Meaning and reason. [section]": ${comment}`
  if (!UNITS.includes(parts[1]!))
    return `${name} has the unit ${parts[1]}: add it to UNITS or use one of them`
  if (!sections.has(parts[3]!))
    return `${name} cites the section ${parts[3]}, which decision 0037 does not have`
  return undefined
}

function sectionsOf(decision: string): ReadonlySet<string> {
  return new Set([...decision.matchAll(/^### (.+)$/gm)].map(found => found[1]!))
}

/** Numbers that a file declares at its top level. */
function numbersOf(text: string): readonly string[] {
  return [...text.matchAll(/^(?:export )?const ([A-Z][A-Z0-9_]*)(?:: [^=]+)? = (?:\[\s*)?-?\d/gm)]
    .map(found => found[1]!)
    .filter(name => !SIZES.includes(name))
}

t.test('every constant has a row with unit, meaning, reason and a section of decision 0037', async t => {
  const rows = rowsOf(textOf('../src/auto-constants.ts'))
  const names = Object.values(AUTO_CONSTANTS).flatMap(group => Object.keys(group))
  t.strictSame(
    rows.map(({ name }) => name),
    names,
  )
  t.equal(new Set(names).size, names.length, 'a name is used once')
  const sections = sectionsOf(textOf(DECISION))
  t.strictSame(rows.map(row => faultOf(row, sections)).filter(Boolean), [])
})

t.test('a row without one of them is reported', async t => {
  const sections = new Set(['wait_ms'])
  const faultWith = (comment: string): string | undefined => faultOf({ name: 'ROWS', comment }, sections)
  t.equal(faultWith('Ms. A wait that is as long as this. [wait_ms]'), undefined)
  t.match(faultWith('A wait that is as long as this. [wait_ms]'), 'ROWS is not')
  t.match(faultWith('Miles. A wait that is as long as this. [wait_ms]'), 'the unit Miles')
  t.match(faultWith('Ms. A wait that is as long as this.'), 'ROWS is not')
  t.match(faultWith('Ms. A wait that is as long as this. [luck]'), 'the section luck')
})

t.test('the files that use the table declare no numbers of their own', async t => {
  for (const path of USERS) t.strictSame(numbersOf(textOf(path)), [], path)
  t.strictSame(numbersOf('const A = 1\nexport const B: number = -2.5\nconst C = [1, 2]\nconst D = f(1)\n'), [
    'A',
    'B',
    'C',
  ])
})
