/**
 * A rule of one's own: the worker with the least prefill work, for the earliest first token. The router tells
 * the loads; the program chooses, and forces its choice.
 *
 *   node by-load.ts MODEL http://10.0.0.1:8001 http://10.0.0.2:8001
 */

import process from 'node:process'
import { KvRouter } from 'homing'

const [model, ...workers] = process.argv.slice(2)

// Setup router
const router = await KvRouter.start({ workers, logLevel: 'warn' })

// Your input tokens
const tokenIds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

// Some work at worker 0, as other requests would make it
const other = Array.from({ length: 64 }, (_, position) => 700 + position)
await router.bestWorker(other, { model, requestId: 'other', workerId: 0 })

// Get potential loads for all workers
const potentialLoads = await router.getPotentialLoads(tokenIds, { model })

// Find worker with minimum prefill tokens (best for TTFT)
const bestWorker = potentialLoads.reduce((best, load) =>
  load.potentialPrefillTokens < best.potentialPrefillTokens ? load : best,
)

console.log(`Worker loads: ${JSON.stringify(potentialLoads)}`)
console.log(`Selected worker ${bestWorker.workerId} with ${bestWorker.potentialPrefillTokens} prefill tokens`)

// Route directly to the selected worker
const stream = router.generate({
  tokenIds,
  model,
  workerId: bestWorker.workerId, // Force routing to optimal worker
  stopConditions: { maxTokens: 20 },
})

// Process response
for await (const response of stream) console.log(`Generated tokens: [${response.tokenIds.join(', ')}]`)

await router.free('other')
await router.close()
