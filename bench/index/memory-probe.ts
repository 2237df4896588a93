/**
 * Prints how much memory an index takes.
 *
 *   node --expose-gc memory-probe.ts FILE LIVE-FILE CAPACITY-MB
 *
 * It applies the events of FILE, then removes the blocks of LIVE-FILE.
 */

import { readFileSync } from 'node:fs'
import { BlockIndex } from '@homing/index'
import { CorpusReader, REMOVED, STORED, type StreamedRecord } from './kvc1.ts'

export interface Footprint {
  readonly memberships: number
  readonly rssBytes: number
  readonly arrayBytes: number
  readonly emptiedRssBytes: number
  readonly emptiedArrayBytes: number
}

/** Of an index that is made, filled and dropped before the first look: code and heap have their size then. */
const WARM_UP_RECORDS = 300
const WARM_UP_MB = 1
const REST_ROUNDS = 3
const REST_MS = 20
/** Events of a batch: after each the indexer lets the index tidy up for a while. */
const MAINTAIN_EVERY = 16

const [path, livePath, megabytes] = process.argv.slice(2) as [string, string, string]

const live = new CorpusReader(livePath)
const offsets: number[] = []
for (let offset = live.offset; live.next(); offset = live.offset) offsets.push(offset)
warmUp()
const events = new CorpusReader(path)
// Its buffer becomes resident with the first read, which must not count as the index.
const start = events.offset
events.next()
events.offset = start
await settle()
const before = residentBytes()

const index = create(Number(megabytes), events.workers)
for (let i = 0; events.next(); i++) {
  if (isEvent(events.record)) apply(index, events.record)
  if (i % MAINTAIN_EVERY === 0) index.maintain()
}
while (index.maintain());
const stats = index.stats()
if (stats.evictedForSpace + stats.refusedBlocks + stats.orphanBlocks > 0) {
  throw new Error(`the corpus does not fit into capacityMb=${megabytes}: ${JSON.stringify(stats)}`)
}
await settle()
const rssBytes = residentBytes() - before

for (const offset of offsets.reverse()) {
  live.offset = offset
  live.next()
  index.remove(live.record.worker, lastFirst(live.record), live.record.count)
}
while (index.maintain());
if (index.stats().memberships !== 0) throw new Error('something is left of what was removed')
await settle()
const footprint: Footprint = {
  memberships: stats.memberships,
  rssBytes,
  arrayBytes: stats.bytesUsed,
  emptiedRssBytes: residentBytes() - before,
  emptiedArrayBytes: index.stats().bytesUsed,
}
process.stdout.write(`${JSON.stringify(footprint)}\n`)

function create(capacityMb: number, workers: number): BlockIndex {
  return BlockIndex.create({
    capacityBytes: capacityMb * 2 ** 20,
    workerSlotsMax: workers,
    orphanBytesMax: 64 << 10,
  })
}

function isEvent({ kind }: StreamedRecord): boolean {
  return kind === STORED || kind === REMOVED
}

function apply(
  to: BlockIndex,
  { kind, worker, count, hasParent, parent, hashes, locals }: StreamedRecord,
): void {
  if (kind === STORED) to.store(worker, hasParent ? parent : undefined, hashes, locals, count)
  else to.remove(worker, hashes, count)
}

function warmUp(): void {
  const warm = create(WARM_UP_MB, live.workers)
  live.offset = offsets[0]!
  for (let i = 0; i < WARM_UP_RECORDS && live.next(); i++) {
    apply(warm, live.record)
    if (i % 2 === 0) warm.remove(live.record.worker, lastFirst(live.record), live.record.count)
  }
}

/** Engines give up leaves before roots. */
function lastFirst({ hashes, count }: StreamedRecord): Int32Array {
  const reversed = new Int32Array(2 * count)
  for (let i = 0; i < count; i++) {
    reversed[2 * i] = hashes[2 * (count - 1 - i)]!
    reversed[2 * i + 1] = hashes[2 * (count - 1 - i) + 1]!
  }
  return reversed
}

/** Buffers that were let go are freed in rounds of the event loop after a collection. */
async function settle(): Promise<void> {
  for (let i = 0; i < REST_ROUNDS; i++) {
    globalThis.gc!()
    await new Promise(resolve => setTimeout(resolve, REST_MS))
  }
}

function residentBytes(): number {
  const [, kilobytes] = /^VmRSS:\s+(\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'))!
  return Number(kilobytes) * 1024
}
