/**
 * Automatic routing: the router does everything. It chooses the worker, books the load, sends the prompt and
 * gives the tokens as they come. Run it with a model and the URLs of its engines:
 *
 *   node automatic.ts MODEL http://10.0.0.1:8001 http://10.0.0.2:8001
 */

import process from 'node:process'
import { KvRouter } from 'homing'

const [model, ...workers] = process.argv.slice(2)

// Create KV router
const router = await KvRouter.start({ workers, logLevel: 'warn' })

// Your input tokens
const tokenIds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

// Generate with per-request routing override
const stream = router.generate({
  tokenIds,
  model,
  stopConditions: {
    maxTokens: 20, // Generate exactly 20 tokens
    ignoreEos: true, // Don't stop at EOS token
  },
  samplingOptions: {
    temperature: 0.7,
    topP: 0.9,
  },
  routerConfigOverride: {
    overlapScoreWeight: 2.0, // Prioritize cache hits for this request
    routerTemperature: 0.5, // Add routing randomness
  },
})

// Collect generated tokens
const generatedTokens: number[] = []
for await (const response of stream) generatedTokens.push(...response.tokenIds)

console.log(`Generated ${generatedTokens.length} tokens: [${generatedTokens.join(', ')}]`)
await router.close()
