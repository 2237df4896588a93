/** Fills an index, removes everything as argument 1 says (`clear` or `remove`), prints what is left. */

import { BlockIndex } from '../src/index.ts'

const how = process.argv[2]
const prompts = 40_000
const length = 60
/** Collections: at most eight were needed in 40 runs that shared a core with three other programs. */
const ROUNDS_MAX = 500
const hashes = new Int32Array(2 * length)
const leavesFirst = new Int32Array(2 * length)

function prompt(i: number): void {
  for (let k = 0; k < 2 * length; k++) hashes[k] = Math.imul(i * 131 + k + 1, 0x9e3779b1) ^ (k * 7)
}

/** Some work on a small index first, so that compiled code is not counted. */
function run(index: BlockIndex, count: number): { arraysFull: number; rssFull: number } {
  for (let i = 0; i < count; i++) {
    prompt(i)
    index.store(i % 60, undefined, hashes, hashes, length)
  }
  const full = { arraysFull: index.stats().bytesUsed, rssFull: process.memoryUsage().rss }
  if (how === 'clear') {
    for (let slot = 0; slot < 60; slot++) index.clear(slot)
  } else {
    for (let i = 0; i < count; i++) {
      prompt(i)
      for (let k = 0; k < length; k++) {
        leavesFirst[2 * k] = hashes[2 * (length - 1 - k)]!
        leavesFirst[2 * k + 1] = hashes[2 * (length - 1 - k) + 1]!
      }
      index.remove(i % 60, leavesFirst, length)
    }
  }
  while (index.maintain());
  return full
}

run(BlockIndex.create({ capacityBytes: 16 << 20, workerSlotsMax: 64 }), 3000)
globalThis.gc?.()
await new Promise(resolve => setImmediate(resolve))
const rssBefore = process.memoryUsage().rss
const index = BlockIndex.create({ capacityBytes: 256 << 20, workerSlotsMax: 64 })
const { arraysFull, rssFull } = run(index, prompts)
const rssLeft = (): number => Math.max(0, process.memoryUsage().rss - rssBefore)
// A thread of V8's gives back the pages of what was collected, later where the machine is busy: so this looks
// until they are back, or have been waited for long enough.
for (let round = 0; round < 5 || (round < ROUNDS_MAX && rssLeft() > 0.05 * (rssFull - rssBefore)); round++) {
  globalThis.gc?.()
  await new Promise(resolve => setImmediate(resolve))
}
process.stdout.write(
  JSON.stringify({
    arraysFull,
    arraysLeft: index.stats().bytesUsed,
    rssFull: rssFull - rssBefore,
    rssLeft: rssLeft(),
  }),
)
