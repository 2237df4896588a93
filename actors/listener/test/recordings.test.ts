/**
 * Sessions of real engines, published again through real ZeroMQ sockets: after every request the index
 * promises what the engine then reused. The differences that remain are named, with their reasons.
 */

import { type ActorRef, createActorSystem } from '@homing/actor'
import { createProbe } from '@homing/actor/testing'
import { indexer } from '@homing/actors/indexer'
import { silentLog, systemClock } from '@homing/base'
import { BlockIndex, IndexReader, layeredOptions } from '@homing/index'
import {
  encodeReplayEnd,
  encodeReplayReply,
  parseEventFrames,
  parseReplayReply,
  parseReplayRequest,
  type ReplayForm,
} from '@homing/protocol'
import { systemTransport } from '@homing/transport'
import t, { type Test } from 'tap'
import { LISTENER_LIMITS, type ListenerMessage, listener, type SourceMessage } from '../src/index.ts'
import { predictedTokens, type Recording, readRecording } from './recording.ts'

/** Prompts of one step share blocks before any event tells of them. */
const SAME_STEP = ['concurrent', 'concurrent', 'concurrent', 'n2']

const EXPECTED: Readonly<
  Record<string, { readonly differs: readonly string[]; readonly replayForm: ReplayForm }>
> = {
  // This version publishes no extra keys, so a salted block looks like an unsalted one, and its chain
  // differs.
  'vllm-0.15.1': { differs: [...SAME_STEP, 'salt', 'lora-salt'], replayForm: 'plain' },
  'vllm-0.22.1': { differs: SAME_STEP, replayForm: 'plain' },
  'vllm-0.25.1': { differs: SAME_STEP, replayForm: 'plain' },
  'vllm-0.32.0-int': { differs: SAME_STEP, replayForm: 'topic' },
  // vLLM publishes a clear only with the next step, so the request after it is predicted from before.
  'vllm-0.32.0-dp2-bytes': { differs: ['clear'], replayForm: 'topic' },
  'vllm-0.32.0-hybrid-swa': { differs: ['clear'], replayForm: 'topic' },
  // `extra_key` is not published.
  'sglang-0.5.23-page16': { differs: [...SAME_STEP, 'sgl-extra-key'], replayForm: 'topic' },
  'sglang-0.5.23-dp2-dynamo': { differs: [], replayForm: 'topic' },
}

interface Batch {
  readonly frames: readonly Uint8Array[]
  readonly sequence: number
  readonly payload: Uint8Array
}

for (const [name, { differs, replayForm }] of Object.entries(EXPECTED)) {
  t.test(`${name}: the index promises what the engine reuses`, async t => {
    const recording = readRecording(name)
    const session = await play(t, recording, replayForm)
    t.strictSame(session.differs, differs)
    t.ok(session.compared >= 24, `${session.compared} requests compared`)
    for (const { status, trust, first } of session.ranks) {
      // Of a session that was not recorded from its start, the beginning may be in no replay either.
      const gaps = first === 0 ? 0 : 1
      t.match(status, { state: 'live', gaps, malformedFrames: 0, skippedEvents: 0, restarts: 0 })
      // The last session clears its caches, after which nothing is unknown.
      t.equal(trust, first === 0 || name === 'sglang-0.5.23-dp2-dynamo' ? 'exact' : 'partial')
    }
  })
}

async function play(t: Test, recording: Recording, replayForm: ReplayForm) {
  const system = await createActorSystem({ logLevel: 'silent' })
  const engine = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(async () => {
    await system.shutdown()
    await engine.close()
  })
  const shard = { capacityBytes: 4 << 20, workerSlotsMax: recording.socketCount }
  const { memory } = BlockIndex.create(layeredOptions(shard.capacityBytes, shard.workerSlotsMax))
  const reader = new IndexReader([memory])
  const indexerRef = system.spawn(indexer, { name: 'indexer', args: { shard: 0, memory, ...shard } })
  const directory = createProbe<SourceMessage>(system, 'directory')

  const ranks = await Promise.all(
    Array.from({ length: recording.socketCount }, async (_, socket) => {
      // What was published before the recording began is in its replay.
      const kept: Batch[] = socket === recording.socketCount - 1 ? earlierBatches(recording) : []
      const publisher = await engine.messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
      const router = await engine.messages.serve({ endpoint: 'tcp://127.0.0.1:0' }, (identity, frames) => {
        const from = parseReplayRequest(frames)
        if (from === undefined) return
        for (const { sequence, payload } of kept) {
          if (sequence >= from) router.send(identity, encodeReplayReply(replayForm, '', sequence, payload))
        }
        router.send(identity, encodeReplayEnd(replayForm))
      })
      const ref = system.spawn(listener, {
        name: `listener ${socket}`,
        args: {
          workerSlot: socket,
          key: `engine/${socket}`,
          dpRank: socket,
          eventsEndpoint: publisher.endpoint,
          replayEndpoint: router.endpoint,
          topic: '',
          blockSizeTokens: recording.blockSizeTokens,
          indexer: indexerRef,
          directory: directory.ref,
          limits: { ...LISTENER_LIMITS, settleMs: 60_000 },
        },
      })
      return { ref, publisher, kept }
    }),
  )
  for (const { ref } of ranks) await until(async () => (await statusOf(ref)).state === 'live')

  const predicted = new Map<number, { readonly scenario: string; readonly tokens: readonly number[] }>()
  const differs: string[] = []
  let compared = 0
  for (const entry of recording.entries) {
    if (entry.kind === 'published') {
      const rank = ranks[entry.socket]!
      const { sequence, payload } = parseEventFrames(entry.frames)
      rank.kept.push({ frames: entry.frames, sequence, payload })
      rank.publisher.send(entry.frames)
    } else if (entry.kind === 'ask') {
      for (const { ref, kept } of ranks) {
        const last = kept.at(-1)?.sequence
        await until(async () => (await statusOf(ref)).lastSequence === last)
      }
      // The indexer has taken what the listeners gave it before it answers.
      await indexerRef.ask({ type: 'status' }, { timeout: 60_000 })
      const tokens = predictedTokens(reader, recording.socketCount, recording.blockSizeTokens, entry)
      predicted.set(entry.id, { scenario: entry.scenario, tokens })
    } else if (entry.kind === 'answer') {
      const { scenario, tokens } = predicted.get(entry.id)!
      compared++
      if (!tokens.includes(entry.cachedTokens)) differs.push(scenario)
    }
  }
  const last = ranks.map(({ kept }) => kept.at(-1)?.sequence)
  for (const [i, { ref }] of ranks.entries())
    await until(async () => (await statusOf(ref)).lastSequence === last[i])
  const played = ranks.map(async ({ ref, kept }, slot) => ({
    status: await statusOf(ref),
    trust: directory.waiting.findLast(message => message.workerSlot === slot)!.trust,
    first: kept[0]?.sequence,
  }))
  return { differs, compared, ranks: await Promise.all(played) }
}

/** Batches that only the replay of the recorded session has. */
function earlierBatches(recording: Recording): Batch[] {
  const published = recording.entries.find(entry => entry.kind === 'published')
  if (published?.kind !== 'published') return []
  const first = parseEventFrames(published.frames).sequence
  const earlier = new Map<number, Batch>()
  for (const entry of recording.entries) {
    if (entry.kind !== 'replay-reply') continue
    const reply = parseReplayReply(entry.frames)
    if (reply.kind !== 'batch' || reply.sequence >= first) continue
    earlier.set(reply.sequence, { frames: entry.frames, sequence: reply.sequence, payload: reply.payload })
  }
  return [...earlier.values()].sort((a, b) => a.sequence - b.sequence)
}

function statusOf(ref: ActorRef<ListenerMessage>) {
  return ref.ask({ type: 'status' }, { timeout: 60_000 })
}

const UNTIL_MS_MAX = 60_000

/** Asks again until it holds; every question is answered by an actor, so nothing spins. */
async function until(holds: () => Promise<boolean>): Promise<void> {
  const endMs = systemClock.nowMs() + UNTIL_MS_MAX
  while (!(await holds())) {
    if (systemClock.nowMs() > endMs) throw new Error('cannot go on: what was awaited did not happen')
    await new Promise<void>(resolve => void systemClock.after(1, resolve))
  }
}
