/**
 * A worker that says which experts its blocks belong to, and moves them to a pool that worker 2 reaches.
 *
 *   node pooled.ts      prints its ports, and publishes until it is stopped
 */

import { createPublisher } from '@homing/publisher'

const BLOCK_TOKENS = 16
const publisher = await createPublisher({
  eventsEndpoint: 'tcp://127.0.0.1:0',
  replayEndpoint: 'tcp://127.0.0.1:0',
  blockSizeTokens: BLOCK_TOKENS,
})

const prompt = Array.from({ length: 4 * BLOCK_TOKENS }, (_, i) => 40 + i)
// The engine's own hashes, each of a block and all before it.
const hashes = [0xa1n, 0xa2n, 0xa3n, 0xa4n]
publisher.stored(
  undefined,
  hashes.map((hash, i) => ({
    hash,
    tokens: prompt.slice(i * BLOCK_TOKENS, (i + 1) * BLOCK_TOKENS),
    moeMetadata: { layerId: 3, expertId: i, expertGroup: 0 },
    cxlMetadata: { state: 'local_gpu' },
  })),
)

// The prefill is over: the blocks go to pool 0.
publisher.publishCxlStateTransition(hashes, 'in_transit', { poolId: 0, accessibleWorkers: [2] })
// The transfer is over: worker 2 can read them there.
publisher.publishCxlStateTransition(hashes, 'cxl_pooled')
// The worker needs its own memory for others; in the pool the last two blocks stay.
publisher.removed(hashes.slice(2).reverse())

const portOf = (endpoint: string | undefined) => endpoint?.split(':').at(-1)
console.log(`events=${portOf(publisher.endpoint)}&replay=${portOf(publisher.replayEndpoint)}`)
process.once('SIGTERM', () => void publisher.close())
