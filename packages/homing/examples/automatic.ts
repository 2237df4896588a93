/**
 * Automatic routing: the router does everything. It chooses the worker, books the load, sends the prompt and
 * gives the tokens as they come. Run it with a model and the URLs of its engines:
 *
 *   node automatic.ts MODEL http://10.0.0.1:8001 http://10.0.0.2:8001
 */

import process from 'node:process'
import { KvRouter } from 'homing'

const [model, ...workers] = process.argv.slice(2)
const router = await KvRouter.start({ workers, model, logLevel: 'warn' })

const stream = router.generate({
  tokenIds: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
  // Exactly 20 tokens: the answer goes on past the end of its text.
  stopConditions: { maxTokens: 20, ignoreEos: true },
  samplingOptions: { temperature: 0.7, topP: 0.9 },
  // For this request only: more weight for cached blocks, and some randomness.
  routerConfigOverride: { overlapScoreWeight: 2.0, routerTemperature: 0.5 },
})

const tokens: number[] = []
for await (const { tokenIds } of stream) tokens.push(...tokenIds)
console.log(`generated ${tokens.length} tokens at ${stream.place?.worker}: ${tokens.join(' ')}`)

await router.close()
