/**
 * ThreadLink: an ordered, bounded pipe of frames between two threads. The runtime sees only this
 * interface; a MessagePort is behind it here, a ring in shared memory or a simulation may be.
 *
 * The frames of one turn travel in one post, as a flat array (`op, target, corr, body, patches` per
 * frame): a post costs as much as the frames in it, up to a few dozen.
 *
 * Bound      the receiver acknowledges frames as it takes them; with LINK_FRAMES_MAX unacknowledged
 *            ones, `offer` answers false. `send` goes past the bound: it is for signals and answers,
 *            whose number other bounds limit.
 * Order      first in, first out, whichever of the two sent it.
 * Close      `onClosed` comes once, after every frame that the peer had posted before it ended.
 */

import { type MessagePort, receiveMessageOnPort, type Transferable } from 'node:worker_threads'
import type { Patch } from './pack.ts'

/** What travels between threads; the meaning of the fields depends on `op` (see frames.ts). */
export interface Frame {
  readonly op: number
  /** The id of an actor, or 0. */
  readonly target: number
  /** Correlates an ask with its answer; 0 where there is none. */
  readonly corr: number
  readonly body: unknown
  /** Where refs and replies have to be put back into `body`; 0 when nowhere. */
  readonly patches: readonly Patch[] | 0
  readonly transfer?: readonly Transferable[]
}

export interface ThreadLink {
  /** Queues a frame; false when the link is full or closed, and the frame was not taken. */
  offer(frame: Frame): boolean
  /** Queues a frame past the bound. Ignored once closed. */
  send(frame: Frame): void
  /** Takes what has arrived, then closes; `onClosed` follows at once. */
  close(): void
}

export interface LinkHandlers {
  readonly onFrame: (frame: Frame) => void
  readonly onClosed: () => void
  /** A frame could not be copied to the other thread. */
  readonly onUnsendable: (frame: Frame, error: unknown) => void
  /** Frames arrived that could not be read; they are lost. */
  readonly onUnreadable: (error: unknown) => void
}

/** Frames that may be on the way, not taken by the receiver. */
export const LINK_FRAMES_MAX = 16_384
const BATCH_FRAMES_MAX = 256
const ACK_FRAMES = 1024
const STRIDE = 5
const ACK_OP = 0

/** A link over a port, whose other end is on the other thread. Takes over the port. */
export function openPortLink(port: MessagePort, handlers: LinkHandlers): ThreadLink {
  let batch: unknown[] = []
  let batchTransfer: Transferable[] = []
  let batchFrames: Frame[] = []
  let isFlushPlanned = false
  let isClosed = false
  let sentCount = 0
  let acknowledgedCount = 0
  let takenCount = 0
  let reportedCount = 0

  const flush = (): void => {
    isFlushPlanned = false
    if (batchFrames.length === 0 || isClosed) return
    const values = batch
    const frames = batchFrames
    const transfer = batchTransfer
    batch = []
    batchFrames = []
    batchTransfer = []
    try {
      port.postMessage(values, transfer)
    } catch {
      // One of them cannot be cloned: post them one by one to find it, in order.
      for (const frame of frames) postAlone(frame)
    }
  }

  const postAlone = (frame: Frame): void => {
    try {
      const values = [frame.op, frame.target, frame.corr, frame.body, frame.patches]
      port.postMessage(values, [...(frame.transfer ?? [])])
    } catch (error) {
      if (frame.op !== ACK_OP) sentCount--
      handlers.onUnsendable(frame, error)
    }
  }

  const push = (frame: Frame): void => {
    batch.push(frame.op, frame.target, frame.corr, frame.body, frame.patches)
    batchFrames.push(frame)
    if (frame.transfer !== undefined) batchTransfer.push(...frame.transfer)
    if (batchFrames.length >= BATCH_FRAMES_MAX) {
      flush()
    } else if (!isFlushPlanned) {
      isFlushPlanned = true
      queueMicrotask(flush)
    }
  }

  const take = (values: unknown[]): void => {
    for (let i = 0; i < values.length; i += STRIDE) {
      const op = values[i] as number
      if (op === ACK_OP) {
        acknowledgedCount = values[i + 1] as number
        continue
      }
      takenCount++
      handlers.onFrame({
        op,
        target: values[i + 1] as number,
        corr: values[i + 2] as number,
        body: values[i + 3],
        patches: values[i + 4] as readonly Patch[] | 0,
      })
    }
    if (takenCount - reportedCount >= ACK_FRAMES && !isClosed) {
      reportedCount = takenCount
      push({ op: ACK_OP, target: takenCount, corr: 0, body: 0, patches: 0 })
    }
  }

  const finish = (): void => {
    if (isClosed) return
    isClosed = true
    handlers.onClosed()
  }

  port.on('message', take)
  port.on('messageerror', handlers.onUnreadable)
  port.on('close', finish)

  return {
    offer(frame) {
      if (isClosed || sentCount - acknowledgedCount >= LINK_FRAMES_MAX) return false
      sentCount++
      push(frame)
      return true
    },
    send(frame) {
      if (isClosed) return
      sentCount++
      push(frame)
    },
    close() {
      if (isClosed) return
      flush()
      for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) {
        take(next.message as unknown[])
      }
      port.close()
      finish()
    },
  }
}
