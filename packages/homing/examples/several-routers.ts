/**
 * Several routers: the program asks each without changing anything, and generates with the one whose worker
 * holds more of the prompt. Here each engine has a router of its own, in one process.
 *
 *   node several-routers.ts MODEL http://10.0.0.1:8001 http://10.0.0.2:8001
 */

import process from 'node:process'
import { setImmediate } from 'node:timers/promises'
import { KvRouter } from 'homing'

const [model, first, second] = process.argv.slice(2)
const routers = await Promise.all(
  [first!, second!].map(worker => KvRouter.start({ workers: [worker], model, logLevel: 'warn' })),
)
const tokens = Array.from({ length: 64 }, (_, position) => 500 - position)
const stopConditions = { maxTokens: 4, ignoreEos: true }

// So that the second has the prompt in its cache; its events are with its router in a moment.
for await (const _ of routers[1]!.generate({ tokenIds: tokens, stopConditions }));
while ((await routers[1]!.findMatchesForRequest(tokens)).length === 0) await setImmediate()

// Without a request id nothing is booked.
const probes = await Promise.all(routers.map(router => router.bestWorker(tokens)))
console.log('overlaps:', probes.map(([, , overlapBlocks]) => overlapBlocks).join(' '))
const chosen = probes[0]![2] > probes[1]![2] ? 0 : 1
const [workerId] = probes[chosen]!
const stream = routers[chosen]!.generate({ tokenIds: tokens, workerId, stopConditions })
let count = 0
for await (const { tokenIds } of stream) count += tokenIds.length
console.log(
  `router ${chosen + 1} generated ${count} tokens, ${stream.usage?.cachedTokens} of the prompt cached`,
)

// Closing one leaves the other.
await routers[0]!.close()
console.log('still there:', (await routers[1]!.workers()).length)
await routers[1]!.close()
