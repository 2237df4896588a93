/**
 * An event socket that floods, as a process of its own: batches of one block stored and one removed, as fast
 * as a PUB socket takes them. Prints `ready <endpoint>`, begins at the first line on standard input, and ends
 * the flood at the second: then it prints `sent <batches>`, and sends one batch now and then, which shows
 * what was lost. Ends with its standard input.
 */

import process from 'node:process'
import { createInterface } from 'node:readline'
import { systemClock } from '@homing/base'
import { encodeEventFrames, encodeKvBatch, kvRemoved, kvStored } from '@homing/protocol'
import { systemTransport } from '@homing/transport'

const BATCHES_PER_TURN = 500
/** Between two batches after the flood. */
const AFTER_MS = 50
const BLOCK_SIZE_TOKENS = 16
/** What the flood keeps in the index. */
const KEPT_BLOCKS = 1000
const TOKENS = Int32Array.from({ length: BLOCK_SIZE_TOKENS }, (_, i) => i)

const { messages } = systemTransport({ clock: systemClock, log: { warn() {} } })
const publisher = await messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
let sequence = 0
let isOn = false

function send(): void {
  const tokens = TOKENS.slice()
  tokens[0] = sequence
  const stored = kvStored({
    hashes: Int32Array.of(sequence, 7),
    tokens,
    blockSizeTokens: BLOCK_SIZE_TOKENS,
  })
  const removed = kvRemoved({ hashes: Int32Array.of(sequence - KEPT_BLOCKS, 7) })
  const events = sequence < KEPT_BLOCKS ? [stored] : [stored, removed]
  const payload = encodeKvBatch({ timestampSeconds: sequence, rank: 0, events }, 'vllm-map')
  publisher.send(encodeEventFrames('', sequence, payload))
  sequence++
}

function flood(): void {
  if (!isOn) return
  for (let i = 0; i < BATCHES_PER_TURN; i++) send()
  setImmediate(flood)
}

const lines = createInterface({ input: process.stdin })
lines.on('line', () => {
  isOn = !isOn
  if (isOn) {
    flood()
    return
  }
  process.stdout.write(`sent ${sequence}\n`)
  setInterval(send, AFTER_MS)
})
lines.on('close', () => process.exit(0))
process.stdout.write(`ready ${publisher.endpoint}\n`)
