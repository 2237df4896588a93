/**
 * Service life: the part of a service actor that is the same for all of them. It starts once, callers may
 * wait for that, and it drains when it is told to.
 *
 *   setup ─▶ start ──▶ started: all who asked whether it is ready have their answer ──▶ drain
 */

import type { ActorContext, Reply, Supervision } from '@homing/actor'
import { type ErrorRecord, toErrorRecord } from '@homing/base'

/** Of the actors that a service has for its work. */
export const CHILD_SUPERVISION = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: '20ms', max: '5s', jitter: 0.2 },
} as const satisfies Supervision

/** `R`: where the service answers, and what it began with. */
export type ServiceMessage<R> =
  /** Answered once it listens, or cannot. */
  | { readonly type: 'whenReady'; readonly reply: Reply<R | ErrorRecord> }
  /** Stops accepting, lets open requests end for `graceMs`, cuts the rest; answers how many were cut. */
  | { readonly type: 'drain'; readonly graceMs: number; readonly reply: Reply<number> }
  /** From itself. */
  | { readonly type: 'started'; readonly outcome: R | ErrorRecord }

export interface Service<R> {
  /** Listens when it resolves. */
  start(): Promise<R>
  drain(graceMs: number): Promise<number>
}

type MessageOf<R, T extends ServiceMessage<R>['type']> = Extract<ServiceMessage<R>, { readonly type: T }>

/** Starts the service. Answers the arms of its actor, which must be reentrant, for these messages. */
export function serviceArms<R>(context: Pick<ActorContext<ServiceMessage<R>>, 'pipe'>, service: Service<R>) {
  let started: R | ErrorRecord | undefined
  const waiting: ((outcome: R | ErrorRecord) => void)[] = []
  context.pipe(
    service.start(),
    outcome => ({ type: 'started', outcome }),
    thrown => ({ type: 'started', outcome: toErrorRecord(thrown) }),
  )
  return {
    whenReady({ reply }: MessageOf<R, 'whenReady'>): void {
      if (started === undefined) waiting.push(reply)
      else reply(started)
    },
    started({ outcome }: MessageOf<R, 'started'>): void {
      started = outcome
      for (const reply of waiting.splice(0)) reply(outcome)
    },
    async drain({ graceMs, reply }: MessageOf<R, 'drain'>): Promise<void> {
      reply(await service.drain(graceMs))
    },
  }
}
