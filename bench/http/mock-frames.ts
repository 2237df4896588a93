/**
 * KV event frames that mock engines publish: encoded before the load comes, for a cache that evicts nothing.
 * The blocks that a prompt adds follow from the order of the prompts; where an engine has fewer, since a
 * router sent the beginning to another, the frame is encoded when it is due.
 */

import { silentLog, systemClock } from '@homing/base'
import { hashBlocks } from '@homing/blocks'
import { loadEngineTokenizer } from '@homing/engine'
import { encodeKvBatch, kvStored } from '@homing/protocol'
import { BatchRing, EventService } from '@homing/publisher'
import { systemTransport } from '@homing/transport'
import { BLOCK_TOKENS, type OpenWorkload, openBodies } from './prompts.ts'

const TOPIC = 'kv-events'
/** Any: the hashes of an engine mean nothing to others. */
const HASH_SEED = { lo: 77, hi: 0 }
const REPLAY_BATCHES_MAX = 100_000
const REPLAY_BYTES_MAX = 1 << 28

export interface PrepareOptions {
  readonly tokenizer: string
  readonly workload: OpenWorkload
  readonly hasEvents: boolean
}

/** What is known of a body before it comes. */
export interface Prepared {
  readonly promptTokens: number
  readonly tokens: Int32Array
  /** Two words a block. */
  readonly hashes: Int32Array
  readonly keys: Float64Array
  /** The frame that stores what is behind `from` blocks. */
  readonly from: number
  readonly frame: Uint8Array | undefined
}

/** Reads the bodies of a workload before its load comes: lengths and, with `hasEvents`, frames. */
export async function prepareBodies(options: PrepareOptions): Promise<readonly Prepared[]> {
  const tokenizer = await loadEngineTokenizer(options.tokenizer)
  const cached = new Set<number>()
  return openBodies(options.workload).map(body => {
    const tokens = tokenizer.encodeChat(JSON.parse(body.toString()), body)
    if (!options.hasEvents) {
      const none = new Int32Array(0)
      return {
        promptTokens: tokens.length,
        tokens: none,
        hashes: none,
        keys: new Float64Array(0),
        from: 0,
        frame: undefined,
      }
    }
    const { count, sequence } = hashBlocks(tokens, BLOCK_TOKENS, HASH_SEED)
    const keys = Float64Array.from({ length: count }, (_, i) => keyOf(sequence, i))
    const blocks = { promptTokens: tokens.length, tokens, hashes: sequence, keys }
    const from = cachedBlocks(keys, cached)
    for (const key of keys.subarray(from)) cached.add(key)
    return { ...blocks, from, frame: frameOf(blocks, from) }
  })
}

/** 53 of the 64 bits of a hash. */
function keyOf(hashes: Int32Array, block: number): number {
  return (hashes[2 * block + 1]! >>> 11) * 2 ** 32 + (hashes[2 * block]! >>> 0)
}

/** Leading blocks that are cached: those of one prompt are so from the first on. */
function cachedBlocks(keys: Float64Array, cached: ReadonlySet<number>): number {
  let low = 0
  let high = keys.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (cached.has(keys[middle]!)) low = middle + 1
    else high = middle
  }
  return low
}

function frameOf(
  { tokens, hashes, keys }: Pick<Prepared, 'tokens' | 'hashes' | 'keys'>,
  from: number,
): Uint8Array | undefined {
  if (from === keys.length) return undefined
  const stored = kvStored({
    hashes: hashes.subarray(2 * from),
    tokens: tokens.subarray(from * BLOCK_TOKENS, keys.length * BLOCK_TOKENS),
    blockSizeTokens: BLOCK_TOKENS,
    ...(from === 0 ? {} : { parent: hashes.subarray(2 * from - 2, 2 * from) }),
  })
  return encodeKvBatch({ timestampSeconds: Date.now() / 1000, rank: 0, events: [stored] }, 'vllm-map')
}

/** The event sockets of one engine. */
export class FramePublisher {
  readonly #service: EventService
  readonly #ring: BatchRing
  readonly #cached = new Set<number>()

  private constructor(service: EventService, ring: BatchRing) {
    this.#service = service
    this.#ring = ring
  }

  static async open(): Promise<FramePublisher> {
    const ring = new BatchRing({ batchesMax: REPLAY_BATCHES_MAX, bytesMax: REPLAY_BYTES_MAX })
    const service = await EventService.open({
      clock: systemClock,
      messages: systemTransport({ clock: systemClock, log: silentLog }).messages,
      eventsEndpoint: 'tcp://127.0.0.1:0',
      replayEndpoint: 'tcp://127.0.0.1:0',
      topic: TOPIC,
      replayForm: 'topic',
      publisherId: '0000000000000000',
      queuedMessagesMax: REPLAY_BATCHES_MAX,
      repliesMax: 1000,
      batchesFrom: start => ring.range(start),
      snapshot: undefined,
    })
    return new FramePublisher(service, ring)
  }

  /** What GET /kv_event_sources answers. */
  get sources(): object {
    const { endpoint, replayEndpoint } = this.#service
    return {
      0: {
        enable_kv_cache_events: true,
        publisher: 'zmq',
        endpoint,
        replay_endpoint: replayEndpoint,
        topic: TOPIC,
      },
    }
  }

  publish(body: Prepared): void {
    const from = cachedBlocks(body.keys, this.#cached)
    const frame = from === body.from ? body.frame : frameOf(body, from)
    if (frame === undefined) return
    for (const key of body.keys.subarray(from)) this.#cached.add(key)
    this.#service.publish(this.#ring.add(frame), frame)
  }
}
