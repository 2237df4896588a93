/** Ping-pong: two actors on two threads, told apart from this one only by where they are placed. */

import { createActorSystem } from '@homing/actor'
import { referee } from './referee.ts'

const system = await createActorSystem({ pools: { court: { count: 2 } } })
const ref = system.spawn(referee, { name: 'referee', args: { threads: ['court-0', 'court-1'] } })

const winner = await ref.ask({ type: 'rally', hits: 1000 }, { timeout: '10s' })
console.log(`1000 hits between court-0 and court-1, the last by ${winner}`)

await system.shutdown()
