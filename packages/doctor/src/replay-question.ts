/**
 * Replay question: whether a replay socket answers, and how far back it goes.
 *
 * `whole` asks for all batches that the engine keeps, as a router does when it starts. `end` asks for batches
 * newer than any, so the answer is empty: this shows that the socket answers, at no cost for a busy engine.
 */

import type { Clock } from '@homing/base'
import { parseReplayReply, parseSnapshotReply, type ReplayForm, replayRequestFrames } from '@homing/protocol'
import type { Frames, MessageTransport } from '@homing/transport'
import { SeenEvents } from './seen-events.ts'
import { until } from './until.ts'

export type ReplayDepth = 'whole' | 'end'

export interface ReplayAnswer {
  /** Milliseconds to the first reply of a replay; undefined: there was none. */
  readonly answeredMs: number | undefined
  readonly form: ReplayForm | undefined
  readonly seen: SeenEvents
}

/** Past `timeoutMs` what has come is the answer. Throws EndpointError. */
export async function askReplay(
  messages: MessageTransport,
  clock: Clock,
  endpoint: string,
  depth: ReplayDepth,
  timeoutMs: number,
): Promise<ReplayAnswer> {
  const startMs = clock.nowMs()
  const ended = Promise.withResolvers<true>()
  const seen = new SeenEvents()
  let answeredMs: number | undefined
  let form: ReplayForm | undefined
  const reply = (frames: Frames): void => {
    if (parseSnapshotReply(frames).kind !== 'malformed') return
    const read = parseReplayReply(frames)
    // Whatever sends back what it gets is no replay socket.
    if (read.kind === 'malformed') return
    answeredMs ??= clock.nowMs() - startMs
    form = frames.length === 4 ? 'topic' : 'plain'
    if (read.kind === 'end') ended.resolve(true)
    else seen.batch(read.sequence, read.payload, form === 'topic' ? read.topic : undefined)
  }
  const dealer = messages.dial({ endpoint }, reply)
  dealer.send(replayRequestFrames(depth === 'whole' ? 0 : Number.MAX_SAFE_INTEGER))
  await until(clock, ended.promise, timeoutMs)
  dealer.close()
  return { answeredMs, form, seen }
}
