/**
 * Hop: what a frame costs on its way from main to an event thread: in batches over a port, as it goes, and as
 * a tell of the actor runtime. The ways take turns.
 */

import { MessageChannel, type MessagePort, postMessageToThread, threadId } from 'node:worker_threads'
import { createActorSystem, defineActor, type Reply, signal } from '@homing/actor'
import { OP } from '../../packages/transport/src/zmq/batch.ts'
import { Link } from '../../packages/transport/src/zmq/link.ts'
import { nextTurn } from '../actors/loads.ts'
import { type Measures, percentile } from '../harness.ts'

export interface HopOptions {
  readonly frames: number
  readonly frameBytes: number
  /** Frames that are sent in one turn of the event loop. */
  readonly burst: number
  readonly rounds: number
}

interface Taken {
  readonly frames: number
  readonly cpuUs: number
}

type Parts = { readonly topic: Uint8Array; readonly sequence: Uint8Array; readonly payload: Uint8Array }
type SinkMessage =
  | ({ readonly type: 'frame' } & Parts)
  | { readonly type: 'taken'; readonly reply: Reply<Taken> }
  | { readonly type: 'thread'; readonly reply: Reply<number> }

/** Takes frames whatever way they come. */
export const frameSink = defineActor(
  import.meta.url,
  'frameSink',
)<SinkMessage>({
  setup() {
    let frames = 0
    let bytes = 0
    let link: Link | undefined
    const take = (payload: Uint8Array): void => {
      frames++
      bytes += payload.length + payload[0]!
    }
    process.on('workerMessage', (message: unknown) => {
      link = new Link(
        (message as { readonly port: MessagePort }).port,
        { entry: (op, _, __, parts) => op === OP.message && take(parts[2]!), command() {}, drained() {} },
        flush => setImmediate(flush),
      )
    })
    return {
      frame: ({ payload }) => take(payload),
      taken: ({ reply }) => reply({ frames: bytes < 0 ? 0 : frames, cpuUs: cpuUs() }),
      thread: ({ reply }) => reply(threadId),
      [signal]: () => link?.close(),
    }
  },
})

function cpuUs(): number {
  const { user, system } = process.threadCpuUsage()
  return user + system
}

const WAYS = ['port', 'tell'] as const
const MAILBOX = 65_536
const ASK = { timeout: '60s' } as const

export async function hopOfFrames({ frames, frameBytes, burst, rounds }: HopOptions): Promise<Measures> {
  const system = await createActorSystem({ pools: { events: { count: 1 } }, logLevel: 'silent' })
  const { port1, port2 } = new MessageChannel()
  try {
    const sink = system.spawn(frameSink, {
      name: 'sink',
      thread: 'events-0',
      mailbox: { capacity: MAILBOX },
    })
    await postMessageToThread(await sink.ask({ type: 'thread' }, ASK), { port: port2 }, [port2])
    const link = new Link(port1, { entry() {}, command() {}, drained() {} }, flush => setImmediate(flush))
    const [topic, sequence] = [new Uint8Array(8), new Uint8Array(8)]
    const send = {
      port(payload: Uint8Array): boolean {
        if (link.isFull) return false
        link.add(OP.message, 1, 0, [topic, sequence, payload])
        return true
      },
      tell: (payload: Uint8Array) => sink.tell({ type: 'frame', topic, sequence, payload }) === 'ok',
    }
    const costs = new Map<string, number[]>()
    const note = (name: string, us: number): void =>
      void costs.set(name, [...(costs.get(name) ?? []), us / frames])
    // The first round warms up.
    for (let round = 0; round <= rounds; round++) {
      for (const way of WAYS) {
        const before = await sink.ask({ type: 'taken' }, ASK)
        const mainBefore = cpuUs()
        for (let sent = 0; sent < frames; await nextTurn()) {
          for (let i = 0; i < burst && sent < frames && send[way](new Uint8Array(frameBytes)); i++) sent++
        }
        let after = await sink.ask({ type: 'taken' }, ASK)
        for (; after.frames < before.frames + frames; await nextTurn())
          after = await sink.ask({ type: 'taken' }, ASK)
        if (round === 0) continue
        note(`hop ${way} main`, cpuUs() - mainBefore)
        note(`hop ${way} thread`, after.cpuUs - before.cpuUs)
      }
    }
    return Object.fromEntries(
      [...costs].map(([name, us]) => [
        name,
        { value: percentile(Float64Array.from(us), 50), unit: 'µs CPU' } as const,
      ]),
    )
  } finally {
    port1.close()
    await system.shutdown()
  }
}
