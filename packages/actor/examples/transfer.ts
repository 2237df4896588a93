/** Transfer: a buffer of a megabyte goes to another thread and comes back, and is copied on neither way. */

import { createActorSystem } from '@homing/actor'
import { painter } from './painter.ts'

const system = await createActorSystem({ pools: { core: { count: 1 } } })
const ref = system.spawn(painter, { name: 'painter', thread: 'core-0' })

const canvas = new Uint8Array(1 << 20)
const painted = ref.ask({ type: 'paint', canvas, colour: 7 }, { timeout: '5s', transfer: [canvas.buffer] })
console.log(`here, once it is asked: ${canvas.byteLength} bytes`)
const back = await painted
console.log(`back: ${back.byteLength} bytes of colour ${back.at(-1)}`)

await system.shutdown()
