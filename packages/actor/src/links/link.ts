/**
 * ThreadLink: an ordered, bounded pipe of frames to another thread. The runtime sees only this interface:
 * behind it are rings in shared memory (ring-link.ts), or a simulation.
 *
 * Order      first in, first out, whichever way a frame was sent.
 * Bound      `offer` answers false when the link is full; `send` bypasses the bound: it is for signals and
 *            answers, whose number other bounds limit.
 * Death      when the other thread ends, its sent frames are taken, then `onClosed` is called once. Tells
 *            that were offered and not taken, before or after the end, stay for the next life of the thread;
 *            other frames do not.
 */

import type { Transferable } from 'node:worker_threads'
import type { LinkCounts } from '../observe/counts.ts'
import type { Patch } from '../packing/pack.ts'

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
  /** Queues a frame; false when the link is full, and the frame was not taken. */
  offer(frame: Frame): boolean
  /** Queues a frame past the bound. Ignored once closed. */
  send(frame: Frame): void
  /** Sends a frame that the other thread can see at once: this one is about to end. */
  sendLast?(frame: Frame): void
  /** Takes what has arrived, then closes; `onClosed` follows at once. */
  close(): void
  /** The other thread is not coming back: forgets what waits, and returns the number of tells among it. */
  discard(): number
  /** Numbers of the asks that the other thread, which has ended, had not taken. Absent: not known. */
  untakenAsks?(): ReadonlySet<number>
  /** Takes no more frames from the other thread: they wait for the next life of this one. */
  pause?(): void
}

export interface LinkHandlers {
  /** The frame is the callee's until it returns, its body for good. */
  readonly onFrame: (frame: Frame) => void
  /** Some frames were handed over: let actors run. False when they have more to do than one turn allows. */
  readonly onBatch: () => boolean
  /** Counts the messages that were handed over. */
  readonly handedOver: () => number
  /** True when none of the first `position` frames handed over waits for a turn of its actor. */
  readonly isHandled: (position: number) => boolean
  /**
   * The other thread has ended, and all that it sent was handed over: `close` is to be called once it is
   * known why.
   */
  readonly onSilent: (close: () => void) => void
  readonly onClosed: () => void
  /** A frame could not be copied to the other thread. */
  readonly onUnsendable: (frame: Frame, error: unknown) => void
  /** Frames arrived that could not be read; they are lost. */
  readonly onUnreadable: (error: unknown) => void
}

/** The thread that has this end of a link. */
export interface LinkedThread {
  readonly uid: number
  readonly counts: LinkCounts
  readonly lives: {
    /** Links it with a (new) life of another. `open` builds the link. */
    connect(
      name: string,
      uid: number,
      open: (handlers: LinkHandlers, previous: ThreadLink | undefined) => ThreadLink,
    ): void
  }
}

/** Frames that may wait for a link that is not there yet, or for room in its ring. */
export const LINK_FRAMES_MAX = 16_384
