/**
 * Manual booking: the router chooses a worker and counts the load; the program sends the request itself, and
 * says when its first token has come and when it has ended.
 *
 *   node manual-booking.ts MODEL http://10.0.0.1:8001 http://10.0.0.2:8001
 */

import process from 'node:process'
import { KvRouter } from 'homing'

const [model, ...workers] = process.argv.slice(2)
const router = await KvRouter.start({ workers, model, logLevel: 'warn' })
const tokens = Array.from({ length: 64 }, (_, position) => position + 1)

const [workerId, , overlapBlocks] = await router.bestWorker(tokens, { requestId: 'req-123' })
console.log(`worker ${workerId} holds ${overlapBlocks} blocks`)
const requests = async (): Promise<number> => {
  const loads = await router.getPotentialLoads(tokens)
  return loads.find(load => load.workerId === workerId)!.activeRequests
}
console.log('requests there:', await requests())

try {
  const { url } = (await router.workers()).find(worker => worker.workerId === workerId)!
  const answer = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model, prompt: tokens, max_tokens: 8, ignore_eos: true, stream: true }),
  })
  let isFirst = true
  for await (const _ of answer.body!) {
    if (isFirst) await router.markPrefillComplete('req-123')
    isFirst = false
  }
} finally {
  // Also when the request fails: a booking that is left counts as load until it expires.
  await router.free('req-123')
}
console.log('requests there:', await requests())

await router.close()
