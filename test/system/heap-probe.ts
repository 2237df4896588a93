/**
 * Heap probe: loaded into a process before everything else (`--import`), it runs on each of its threads. On
 * the message 'heap' of the parent process each thread takes a snapshot of its heap, and the parent gets the
 * bytes of all objects. Threads without actors, such as those of the tokenizer's pool, are left out: they
 * know no workers, and sleep until there is work.
 *
 * The JavaScript engine's own data (code, types, forms of objects) does not count: it grows for minutes while
 * functions are optimized, by more than a small leak of objects.
 */

import { text } from 'node:stream/consumers'
import { getHeapSnapshot } from 'node:v8'
import { BroadcastChannel, isMainThread, threadId, workerData } from 'node:worker_threads'

/** Of all these threads, after a collection. */
export interface HeapReport {
  readonly threads: number
  readonly objects: number
  /** Of these objects themselves, without what buffers have outside the heaps. */
  readonly bytes: number
}

interface Left extends Omit<HeapReport, 'threads'> {
  readonly type: 'left'
}

type Word = { readonly type: 'here'; readonly thread: number } | { readonly type: 'collect' } | Left

interface Snapshot {
  readonly snapshot: {
    readonly meta: {
      readonly node_fields: readonly string[]
      readonly node_types: readonly [readonly string[], ...unknown[]]
    }
  }
  readonly nodes: readonly number[]
}

/** Of V8's snapshots: what programs make. */
const COUNTED: ReadonlySet<string> = new Set([
  ...['object', 'closure', 'array', 'string', 'concatenated string', 'sliced string'],
  ...['number', 'regexp', 'symbol', 'bigint'],
])

const hasActors = typeof workerData === 'object' && workerData !== null && 'thread' in workerData
const channel = new BroadcastChannel('homing-heap-probe')
channel.unref()

async function left(): Promise<Left> {
  const { snapshot, nodes } = JSON.parse(await text(getHeapSnapshot())) as Snapshot
  const { node_fields: fields, node_types: types } = snapshot.meta
  const [typeAt, sizeAt] = [fields.indexOf('type'), fields.indexOf('self_size')]
  let objects = 0
  let bytes = 0
  for (let at = 0; at < nodes.length; at += fields.length) {
    if (!COUNTED.has(types[0][nodes[at + typeAt]!]!)) continue
    objects++
    bytes += nodes[at + sizeAt]!
  }
  return { type: 'left', objects, bytes }
}

if (isMainThread) {
  const threads = new Set<number>()
  let reports: Left[] = []
  const take = (report: Left): void => {
    reports.push(report)
    if (reports.length <= threads.size) return
    const sum = (of: (one: Left) => number) => reports.reduce((total, one) => total + of(one), 0)
    process.send?.({
      threads: reports.length,
      objects: sum(({ objects }) => objects),
      bytes: sum(({ bytes }) => bytes),
    } satisfies HeapReport)
    reports = []
  }
  channel.onmessage = message => {
    const word = (message as { readonly data: Word }).data
    if (word.type === 'here') threads.add(word.thread)
    if (word.type === 'left') take(word)
  }
  process.on('message', word => {
    if (word !== 'heap') return
    channel.postMessage({ type: 'collect' } satisfies Word)
    void left().then(take)
  })
  process.channel?.unref()
} else if (hasActors) {
  channel.onmessage = message => {
    if ((message as { readonly data: Word }).data.type === 'collect')
      void left().then(report => channel.postMessage(report))
  }
  channel.postMessage({ type: 'here', thread: threadId } satisfies Word)
}
