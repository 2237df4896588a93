/** Timers: in production they take their time; on the clock of a test an hour is over at once. */

import { createActorSystem } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import { alarm } from './alarm.ts'

const system = await createActorSystem({ logLevel: 'silent' })
const ref = system.spawn(alarm, { name: 'alarm' })
console.log((await ref.ask({ type: 'start' }, { timeout: '5s' })).join(' '))
await system.shutdown()

const test = createTestSystem()
const asked = test.spawn(alarm, { name: 'alarm' }).ask({ type: 'start' }, { timeout: '120m' })
await test.advance('60m')
console.log(`after an hour: ${(await asked).join(' ')}`)
await test.shutdown()
