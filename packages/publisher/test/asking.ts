/**
 * A router's requests to a replay socket, with whole answers; only for tests, which end by their own time
 * limit.
 */

import {
  decodeKvBatch,
  decodeSnapshotBatch,
  type KvEvent,
  parseReplayReply,
  parseSnapshotReply,
  type ReplayReply,
  replayRequestFrames,
  type SnapshotForm,
  type SnapshotReply,
  snapshotRequestFrames,
} from '@homing/protocol'
import type { Frames, MessageTransport } from '@homing/transport'

export interface Replay {
  readonly batches: readonly Extract<ReplayReply, { readonly kind: 'batch' }>[]
  readonly events: readonly KvEvent[]
  /** Frames of each reply, the end included. */
  readonly frameCounts: ReadonlySet<number>
}

/** Everything from `start` on, up to the end marker. */
export async function replay(messages: MessageTransport, endpoint: string, start: number): Promise<Replay> {
  const batches: Extract<ReplayReply, { readonly kind: 'batch' }>[] = []
  const frameCounts = new Set<number>()
  await asked(messages, endpoint, replayRequestFrames(start), frames => {
    frameCounts.add(frames.length)
    const reply = parseReplayReply(frames)
    if (reply.kind === 'batch') batches.push(reply)
    return reply.kind !== 'batch'
  })
  const events = batches.flatMap(({ payload }) => decodeKvBatch(payload).events)
  return { batches, events, frameCounts }
}

export interface TakenSnapshot {
  readonly replies: readonly SnapshotReply[]
  readonly events: readonly KvEvent[]
}

/** All parts, or the refusal. */
export async function snapshot(
  messages: MessageTransport,
  endpoint: string,
  form: SnapshotForm = 'tokens',
): Promise<TakenSnapshot> {
  const replies: SnapshotReply[] = []
  await asked(messages, endpoint, snapshotRequestFrames(form), frames => {
    const reply = parseSnapshotReply(frames)
    replies.push(reply)
    return reply.kind !== 'part' || reply.part === reply.parts - 1
  })
  const decode = form === 'tokens' ? decodeKvBatch : decodeSnapshotBatch
  const events = replies.flatMap(reply => (reply.kind === 'part' ? decode(reply.payload).events : []))
  return { replies, events }
}

/** Hands answers on until `isLast` says that one is. */
export async function asked(
  messages: MessageTransport,
  endpoint: string,
  request: Frames,
  isLast: (frames: Frames) => boolean,
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const dealer = messages.dial({ endpoint }, frames => {
    if (isLast(frames)) resolve()
  })
  dealer.send(request)
  await promise
  dealer.close()
}
