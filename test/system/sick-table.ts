/**
 * Writes the table of sick engines into docs/reliability.md, measured anew (some 5 minutes):
 *
 *   pnpm exec node test/system/sick-table.ts [seconds=20]
 *
 * A cell is "failed % · left after s · back after s". The settings are the defaults.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { hasOpenssl } from './certificates.ts'
import { type Course, coursesOf, illnesses, meansIn } from './sick-engines.ts'

const PAGE = join(import.meta.dirname, '../../docs/reliability.md')
const [BEGIN, END] = ['<!-- sick engines -->', '<!-- end of sick engines -->']
const POLICIES = ['auto', 'linear', 'round-robin']
/** Illnesses at a time: more would keep the processors busy, and take longer to answer than they should. */
const WARDS = 6

const seconds = Number(process.argv[2]?.replace('seconds=', '') ?? 20)
if (!(seconds >= 3)) throw new Error('cannot measure: give seconds=N, at least 3')
if (!hasOpenssl) throw new Error('cannot measure: openssl is not installed')
const folder = mkdtempSync(join(tmpdir(), 'homing-sick-'))
try {
  const means = meansIn(folder)
  const all = illnesses(means)
  const rows = new Map(all.map(({ name }) => [name, [] as string[]]))
  for (const policy of POLICIES) {
    for (let i = 0; i < all.length; i += WARDS) {
      const courses = await coursesOf(all.slice(i, i + WARDS), { policy, seconds, means })
      for (const course of courses) rows.get(course.illness)!.push(cell(course))
      console.error(`${policy}: ${Math.min(all.length, i + WARDS)} of ${all.length}`)
    }
  }
  const table = [
    `| one of three | ${POLICIES.join(' | ')} |`,
    `|---|${POLICIES.map(() => '---|').join('')}`,
    ...Array.from(rows, ([name, cells]) => `| ${name} | ${cells.join(' | ')} |`),
  ].join('\n')
  const page = readFileSync(PAGE, 'utf8')
  const [before, rest] = page.split(BEGIN)
  const after = rest?.split(END)[1]
  if (before === undefined || after === undefined) throw new Error(`cannot write: ${PAGE} lacks ${BEGIN}`)
  writeFileSync(PAGE, `${before}${BEGIN}\n\n${table}\n\n${END}${after}`)
  console.log(table)
} finally {
  rmSync(folder, { recursive: true })
}

function cell({ sentLater, failedLater, leftMs, backMs }: Course): string {
  const failed = failedLater === 0 ? '0' : `${((100 * failedLater) / sentLater).toFixed(2)} %`
  const left = leftMs === undefined ? 'stays' : `${(leftMs / 1000).toFixed(1)} s`
  return `${failed} · ${left} · ${(backMs / 1000).toFixed(1)} s`
}
