/**
 * A rule of one's own: the worker with the least prefill work, for the earliest first token. The router tells
 * the loads; the program chooses, and forces its choice.
 *
 *   node by-load.ts MODEL http://10.0.0.1:8001 http://10.0.0.2:8001
 */

import process from 'node:process'
import { KvRouter } from 'homing'

const [model, ...workers] = process.argv.slice(2)
const router = await KvRouter.start({ workers, model, logLevel: 'warn' })
const tokens = Array.from({ length: 64 }, (_, position) => 300 + position)

// Some work at worker 0.
await router.bestWorker(
  tokens.map(token => token + 300),
  { requestId: 'other', workerId: 0 },
)

const loads = await router.getPotentialLoads(tokens)
for (const { workerId, potentialPrefillTokens, potentialDecodeBlocks } of loads)
  console.log(
    `worker ${workerId}: ${potentialPrefillTokens} prefill tokens, ${potentialDecodeBlocks} decode blocks`,
  )
const best = loads.reduce((a, b) => (b.potentialPrefillTokens < a.potentialPrefillTokens ? b : a))

const stream = router.generate({
  tokenIds: tokens,
  workerId: best.workerId,
  stopConditions: { maxTokens: 20, ignoreEos: true },
})
let count = 0
for await (const { tokenIds } of stream) count += tokenIds.length
console.log(`worker ${best.workerId} generated ${count} tokens`)

await router.free('other')
await router.close()
