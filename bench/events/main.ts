/**
 * Question   How fast do KV events of engines become visible to lookups, and what does one cost?
 * Workload   engines that store runs of blocks of 16 tokens with every batch and remove old ones, encoded
 *            as vLLM does (MessagePack maps); the index holds the last 1,024 batches.
 * Parts      path   wire to reader: publishers on main over ZeroMQ on loopback, listeners and indexer as
 *                   actors on one event thread, a reader on main. Closed with 512 batches in flight
 *                   (`eventBlocks`), then at half of that rate: from sent to visible.
 *            nats   the same through a NATS server (a process of its own on this machine); nats2 into two
 *                   indexes on a thread each; zmq2 is path into two. `brokerCpu` is the CPU time of the
 *                   server, per event.
 *            stream the same through a stream of that server, which keeps the events on its disk
 *                   (--router-durable-kv-events); stream2 into two indexes. batchRuns: events that a batch
 *                   stores, and as many that it removes, as publishers that batch do.
 *            restart  a router that starts while its workers hold restartBlocks: until all keys are exact,
 *                   beyond the same start with empty caches. From snapshots beside the stream and the rest of
 *                   the stream; local: from the local indexers of its publishers.
 *            cost   decode, hash and index in one thread, runs of 1, 16 and 128 blocks, on an index of 10 k,
 *                   1 M and 10 M memberships.
 *            labelBytes: the table for labels of blocks in path and cost; no event has any.
 *            hop    a frame from main to an event thread: in batches over a port, and as a tell.
 * Checked    every batch is seen by a lookup; no gap, no malformed frame; what each engine holds at the end.
 * Read it    `block/s` counts stored and removed blocks, with everything from the socket to the index.
 *            Sockets are on main, as in the router, and so are the engines and the reader, which polls: main
 *            is the busier thread, and the rate a lower bound for the event thread. `eventThreadCpu` is the
 *            CPU time of all threads but main.
 */

import { loadavg } from 'node:os'
import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import { CORES_MIN, effectiveCores } from '../actors/cores.ts'
import { gated } from '../actors/gate.ts'
import { isSmoke, type Measures, parameter, runBench, Skip, say } from '../harness.ts'
import { costOfEvents } from './cost.ts'
import { hopOfFrames } from './hop.ts'
import { eventPath } from './path.ts'
import { restartFromPublishers, restartFromStream } from './restart.ts'

const options = {
  engines: parameter('engines', { smoke: 2, full: 8 }),
  runBlocks: parameter('runBlocks', { smoke: 8, full: 16 }),
  batchRuns: parameter('batchRuns', { smoke: 1, full: 1 }),
  batches: parameter('batches', { smoke: 400, full: 4000 }),
  pacedBatches: parameter('pacedBatches', { smoke: 100, full: 2000 }),
  labelBytes: parameter('labelBytes', { smoke: 1 << 20, full: 0 }),
}
const ALL = 'path,nats,zmq2,nats2,stream,stream2,restart,local,cost,hop'
const parts = parameter('parts', { smoke: ALL, full: ALL }).split(',')
const hop = {
  frames: parameter('frames', { smoke: 1000, full: 50_000 }),
  frameBytes: parameter('frameBytes', { smoke: 700, full: 700 }),
  burst: parameter('burst', { smoke: 32, full: 32 }),
  rounds: parameter('rounds', { smoke: 1, full: 7 }),
}
const restart = {
  keys: parameter('restartKeys', { smoke: 2, full: 4 }),
  blocks: parameter('restartBlocks', { smoke: 4096, full: 1_000_000 }),
  batchBlocks: parameter('restartBatchBlocks', { smoke: 32, full: 64 }),
  restShare: parameter('restartRest', { smoke: 0.1, full: 0.05 }),
  starts: parameter('restartStarts', { smoke: 1, full: 3 }),
}
const membershipsMax = parameter('memberships', { smoke: 10_000, full: 10_000_000 })

async function runPart(part: string): Promise<Measures | Skip> {
  const cores = await effectiveCores()
  say(`  ${part}: two busy threads get ${cores.toFixed(2)} cores; load average ${loadavg()[0]!.toFixed(2)}`)
  if (part === 'cost') return costOfEvents(membershipsMax, options.labelBytes)
  if (part === 'hop') return hopOfFrames(hop)
  if (/^(nats|stream|restart|local)/.test(part) && NO_NATS_SERVER !== false) return new Skip(NO_NATS_SERVER)
  if (part === 'restart') return restartFromStream(restart)
  if (part === 'local') return restartFromPublishers(restart)
  const run = () => measurePath(part)
  if (isSmoke) return run()
  const outcome = await gated(part, run)
  if ('value' in outcome) return outcome.value
  return new Skip(`two busy threads get ${outcome.cores.toFixed(2)} cores, not ${CORES_MIN}`)
}

async function measurePath(part: string): Promise<Measures> {
  const replicas = part.endsWith('2') ? 2 : 1
  if (part.startsWith('stream')) return measureStream(part, replicas)
  if (!part.startsWith('nats')) return named(part, await eventPath({ ...options, replicas }))
  const broker = await NatsServer.start()
  try {
    return named(part, await eventPath({ ...options, replicas, broker }))
  } finally {
    await broker.stop()
  }
}

async function measureStream(part: string, replicas: number): Promise<Measures> {
  const broker = await NatsServer.start({ streams: [] })
  const stream = { namespace: 'bench', retentionMs: 3_600_000, bytesMax: 2 ** 30 }
  try {
    return named(part, await eventPath({ ...options, replicas, broker, stream }))
  } finally {
    await broker.stop()
  }
}

/** The names of `path` are as they were before there were others. */
function named(part: string, measures: Measures): Measures {
  if (part === 'path') return measures
  return Object.fromEntries(Object.entries(measures).map(([name, measure]) => [`${part} ${name}`, measure]))
}

await runBench(
  {
    name: 'events',
    question: 'How fast do KV events of engines become visible to lookups, and what does one cost?',
    parts,
  },
  runPart,
)
