/**
 * Watch: one actor is told how others end, on whatever thread, once for each; also when they have ended
 * already.
 */

import { createActorSystem } from '@homing/actor'
import { nurse } from './nurse.ts'
import { patient } from './patient.ts'

const system = await createActorSystem({ pools: { ward: { count: 2 } }, logLevel: 'silent' })
const stopped = system.spawn(patient, { name: 'stopped', thread: 'ward-0' })
const failed = system.spawn(patient, { name: 'failed', thread: 'ward-0' })
const lost = system.spawn(patient, { name: 'lost', thread: 'ward-1' })
stopped.tell({ type: 'leave' })
await system.whenTerminated(stopped)

const ref = system.spawn(nurse, { name: 'nurse' })
ref.tell({ type: 'watch', patients: [stopped, failed, lost] })
failed.tell({ type: 'fall' })
await system.killThread('ward-1')
for (const end of await ref.ask({ type: 'report' }, { timeout: '10s' })) console.log(end)

await system.shutdown()
