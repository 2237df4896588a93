/** docs/doctor.md shows what `homing doctor` prints: ports by the names of their engines, times as N. */

import t from 'tap'
import { DOCTOR_CASES } from './doctor-cases.ts'
import { blockNames, blockOf } from './doctor-page.ts'
import { DoctorWorld } from './doctor-world.ts'

for (const { name, finding, exitCode, trust, start, settings } of DOCTOR_CASES) {
  t.test(`docs/doctor.md shows what is printed: ${name}`, async t => {
    const world = new DoctorWorld(t)
    const shown = await world.show(await start(t, world), settings)
    t.equal(shown.exitCode, exitCode)
    t.match(shown.text, finding)
    t.match(shown.text, `trust within reach: ${trust}`)
    t.equal(blockOf(name), shown.text, 'pnpm run docs writes the page anew')
  })
}

t.test('docs/doctor.md shows every case, and no other', async t => {
  t.strictSame(
    blockNames(),
    DOCTOR_CASES.map(({ name }) => name),
  )
})
