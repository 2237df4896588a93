/**
 * A worker of token ids: it says the prompt backwards, token by token.
 *
 *   node worker.ts DIRECTORY [NATS]     DIRECTORY has the tokenizer of the model
 *
 * It prints the line that starts a router over it; with the address of a NATS broker it registers itself
 * there.
 */

import process from 'node:process'
import { serveTokens } from '@homing/worker'

const [directory, broker] = process.argv.slice(2)

const worker = await serveTokens({
  model: 'mirror',
  modelPath: directory,
  contextLength: 4096,
  nats: broker === undefined ? undefined : [broker],
  async *generate({ tokenIds, resumedTokens }) {
    // What another worker has generated of this answer is at the end of them.
    const prompt = tokenIds.slice(0, tokenIds.length - resumedTokens)
    for (const token of prompt.toReversed().slice(resumedTokens)) yield token
  },
})
console.log(`homing router --worker '${worker.url}'`)
process.stdin.resume()
process.stdin.on('end', () => void worker.close(10_000).then(() => process.exit()))
