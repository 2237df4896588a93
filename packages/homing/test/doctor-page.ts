/**
 * The blocks of docs/doctor.md: what `homing doctor` prints about engines that are set up wrongly, each
 * behind a mark `<!-- doctor: NAME -->`. Run as a program it writes them (`pnpm run docs`); a test compares.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { DOCTOR_CASES } from './doctor-cases.ts'
import { DoctorWorld, type Ending } from './doctor-world.ts'

const PAGE = join(import.meta.dirname, '..', '..', '..', 'docs', 'doctor.md')

/** What stands there now; undefined: there is no such mark. */
export function blockOf(name: string): string | undefined {
  return blockPattern(name).exec(readFileSync(PAGE, 'utf8'))?.[2]
}

/** The names of all marks. */
export function blockNames(): readonly string[] {
  const page = readFileSync(PAGE, 'utf8')
  return Array.from(page.matchAll(/<!-- doctor: (.*?) -->/g), ([, name]) => name!)
}

function blockPattern(name: string): RegExp {
  return new RegExp(`(<!-- doctor: ${name} -->\\n+\`\`\`text\\n)([^]*?)(\\n\`\`\`)`)
}

async function writeBlocks(): Promise<void> {
  for (const { name, start, settings } of DOCTOR_CASES) {
    const ends: (() => unknown)[] = []
    const ending: Ending = { teardown: end => void ends.unshift(end) }
    const world = new DoctorWorld(ending)
    const { text } = await world.show(await start(ending, world), settings)
    for (const end of ends) await end()
    const page = readFileSync(PAGE, 'utf8')
    writeFileSync(
      PAGE,
      page.replace(blockPattern(name), (_, head, __, tail) => `${head}${text}${tail}`),
    )
  }
  process.stdout.write(`wrote ${PAGE}\n`)
}

if (import.meta.main) await writeBlocks()
