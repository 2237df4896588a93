/**
 * A router and a tracker of their own before a fleet that the test makes up, where every letter of a prompt
 * is a block.
 */

import assert from 'node:assert/strict'
import { createTestSystem } from '@homing/actor/testing'
import type {
  AuditMessage,
  ComputedMessage,
  DirectoryMessage,
  PromptsMessage,
} from '@homing/actors/directory'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import { type GatewayLife, tracker } from '@homing/actors/tracker'
import { chainSequence } from '@homing/blocks'
import type { Fleet, WorkerRecord } from '@homing/fleet'
import { BlockIndex, KEY_LAYERS, layeredOptions, layerSlot, type Trust } from '@homing/index'
import type { Decision, Delivery, RoutingRequest } from '@homing/placement'
import { SELECTION_DEFAULTS } from '@homing/selection'
import type { Test } from 'tap'
import { type RouterArgs, router } from '../src/index.ts'

export const ASK = { timeout: '1s' } as const
export const SLOTS = 64
export const BLOCK = 16

/** Local hashes of a prompt, one block per letter. */
export function prompt(letters: string): Int32Array {
  return Int32Array.from([...letters].flatMap(letter => [letter.charCodeAt(0), 7]))
}

export function request(letters: string, extra: Partial<RoutingRequest> = {}): RoutingRequest {
  const localHashes = prompt(letters)
  return {
    requestId: `request ${letters}`,
    model: 'm',
    // One token past the last full block, so that all full blocks can be reused.
    promptTokens: letters.length * BLOCK + 1,
    blockSizeTokens: BLOCK,
    localHashes,
    sequenceHashes: chainSequence(localHashes, letters.length),
    unknownPromptReason: undefined,
    textBlocksReason: undefined,
    override: {},
    pinnedInstanceId: undefined,
    pinnedRank: undefined,
    excludedWorkers: [],
    ...extra,
  }
}

interface WorkerOptions {
  readonly id: string
  readonly slots: readonly number[]
  readonly state?: WorkerRecord['state']
  readonly trust?: Trust
  readonly models?: readonly string[]
  readonly blockSizeTokens?: number
  readonly joinedMs?: number
  readonly isOnTrial?: boolean
  readonly role?: NonNullable<WorkerRecord['role']>
}

export function fleetOf(...workers: WorkerOptions[]): Fleet {
  return {
    version: 1,
    workers: workers.map(({ id, slots, state, trust, models, blockSizeTokens, ...more }, instanceId) => ({
      id,
      instanceId,
      joinedMs: 1,
      origin: `http://${id}`,
      state: state ?? 'up',
      stateReason: 'as the test has it',
      engine: 'vllm',
      engineVersion: '',
      models: (models ?? ['m']).map(name => ({
        name,
        base: undefined,
        root: undefined,
        maxModelTokens: undefined,
      })),
      blockSizeTokens: { value: blockSizeTokens ?? BLOCK, source: 'given' },
      maxBatchedTokens: { value: 8192, source: 'default' },
      kvBlocks: undefined,
      ranks: { value: slots.length, source: 'given' },
      taints: [],
      canTokenize: false,
      ...more,
      keys: slots.map((workerSlot, dpRank) => ({
        key: `${id}/${dpRank}`,
        workerSlot,
        dpRank,
        eventsEndpoint: undefined,
        replayEndpoint: undefined,
        topic: '',
        shard: 0,
        trust: trust ?? 'exact',
        trustReason: '',
        trustSinceMs: 0,
        epoch: 1,
      })),
    })),
  }
}

export const DELIVERED: Delivery = {
  outcome: 'ok',
  status: 200,
  promptTokens: 17,
  completionTokens: 4,
  cachedTokens: undefined,
  waitedMs: 1,
  timeToFirstByteMs: 12,
  durationMs: 40,
  streamEvents: undefined,
  error: undefined,
}

/** Of a client that left before anything was sent. */
export const LEFT: Delivery = {
  ...DELIVERED,
  outcome: 'aborted',
  status: undefined,
  promptTokens: undefined,
  completionTokens: undefined,
  timeToFirstByteMs: undefined,
}

export const GATEWAY: GatewayLife = { name: 'gateway', life: 'one' }

type SubscribeMessage = Extract<DirectoryMessage, { readonly type: 'subscribe' }>

/** `system`: where the test has actors of its own. */
export async function start(
  t: Test,
  fleet: Fleet,
  settings: Partial<RouterArgs> = {},
  system = createTestSystem(),
) {
  t.teardown(() => system.shutdown())
  const index = BlockIndex.create(layeredOptions(1 << 20, SLOTS))
  const trackerRef = system.spawn(tracker, {
    name: 'tracker',
    args: { workerSlotsMax: SLOTS, requestsMax: 100, idleMsMax: 60_000 },
  })
  const directory = system.probe<AuditMessage | ComputedMessage | PromptsMessage | SubscribeMessage>(
    'directory',
  )
  const indexer = system.probe<IndexerMessage | RoutedMessage>('indexer')
  const ref = system.spawn(router, {
    name: 'router',
    args: {
      tracker: trackerRef,
      directory: directory.ref,
      indexMemories: [index.memory],
      indexers: [indexer.ref],
      workerSlotsMax: SLOTS,
      layerWeights: { host: 0.75, disk: 0.25 },
      guesses: { ttlWithoutEventsMs: 120_000, ttlUntilEventsMs: undefined, blocksMax: 1 << 20 },
      selection: SELECTION_DEFAULTS,
      guard: { share: 0 },
      decisionsKept: 3,
      receiptRowsMax: 1000,
      openMax: 200,
      trackerMsMax: 1000,
      ...settings,
    },
    supervision: { directive: 'restart', max: 3, within: '1m', backoff: { min: 1, max: 1 } },
  })
  trackerRef.tell({ type: 'fleet', fleet })
  ref.tell({ type: 'fleet', fleet })
  const hold = (workerSlot: number, letters: string): void => {
    const hashes = chainSequence(prompt(letters), letters.length)
    assert.equal(index.store(workerSlot, undefined, hashes, prompt(letters), letters.length), 'stored')
  }
  let decisions = 0
  const ask = (routing: RoutingRequest, gateway: GatewayLife = GATEWAY) =>
    ref.ask({ type: 'decide', id: `decision-${++decisions}`, gateway, request: routing }, ASK)
  const decide = async (routing: RoutingRequest, gateway?: GatewayLife): Promise<Decision> => {
    const result = await ask(routing, gateway)
    if (result.kind === 'refused') throw new Error(`${result.error.code}: ${result.error.message}`)
    if (result.kind === 'busy') throw new Error('busy')
    return result.decision
  }
  const refusal = async (routing: RoutingRequest): Promise<string> => {
    const result = await ask(routing)
    return result.kind === 'refused' ? result.error.code : 'decided'
  }
  const loads = async () => (await trackerRef.ask({ type: 'loads' }, ASK)).rows
  /** What the indexer was told of these kinds. */
  const told = <T extends RoutedMessage['type']>(...types: readonly T[]) =>
    indexer.waiting.filter((message): message is Extract<RoutedMessage, { readonly type: T }> =>
      types.some(type => message.type === type),
    )
  /** What the directory was told about workers. */
  const reported = () => directory.waiting.filter(({ type }) => type !== 'subscribe')
  return { index, system, ref, trackerRef, directory, reported, told, hold, decide, refusal, loads }
}

/** One block per letter, in a layer of a key. */
export const holdIn = (
  index: BlockIndex,
  workerSlot: number,
  layer: number,
  letters: string,
  from = 0,
): void => {
  const count = letters.length - from
  const [hashes, words] = [chainSequence(prompt(letters), letters.length), prompt(letters)]
  const parent = from === 0 ? undefined : hashes.subarray(2 * from - 2, 2 * from)
  const slot = layerSlot(workerSlot, layer, SLOTS)
  const others = KEY_LAYERS.map((_, other) => layerSlot(workerSlot, other, SLOTS))
  const rest = [hashes.subarray(2 * from), words.subarray(2 * from)] as const
  assert.equal(index.store(slot, parent, ...rest, count, 'set', others), 'stored')
}
