/**
 * Settled log: reports every request that has ended to the decision log and to what-if. The reports are
 * numbered, so that each receiver notices those that its full mailbox refused.
 *
 * A request that is placed several times is reported once, with its last placement.
 */

import type { ActorRef } from '@homing/actor'
import type { DecisionLogMessage, SettledMessage, SettledRequest } from '@homing/actors/decision-log'
import type { Clock } from '@homing/base'
import { believedTokens, type Delivery, reusedTokens } from '@homing/placement'
import type { LoggedDecision, OpenDecision } from './open-decisions.ts'

export class SettledLog {
  readonly #log: ActorRef<DecisionLogMessage> | undefined
  readonly #keepers: readonly ActorRef<SettledMessage>[]
  readonly #clock: Clock
  /** Unix milliseconds at time 0 of the clock. */
  readonly #originMs: number
  #told = 0

  /** `log` is also asked to flush. */
  constructor(
    log: ActorRef<DecisionLogMessage> | undefined,
    others: readonly ActorRef<SettledMessage>[],
    clock: Clock,
  ) {
    this.#log = log
    this.#keepers = log === undefined ? others : [log, ...others]
    this.#clock = clock
    this.#originMs = clock.wallMs() - clock.nowMs()
  }

  settled(open: OpenDecision, logged: LoggedDecision, delivery: Delivery, wasTaken: boolean): void {
    const nowMs = this.#clock.nowMs()
    // A request that its gateway could not settle has no times of its own.
    const arrivedMs = Math.min(nowMs - delivery.waitedMs - delivery.durationMs, logged.decidedMs)
    const request = settledRequest(open, logged, delivery, {
      arrivedAtMs: this.#originMs + arrivedMs,
      totalMs: nowMs - arrivedMs,
      wasTaken,
    })
    const message: SettledMessage = { type: 'settled', request, number: this.#told++ }
    for (const keeper of this.#keepers) keeper.tell(message)
  }

  /** False: the decision log does not answer, or cannot write. */
  async flush(timeoutMs: number): Promise<boolean> {
    return (
      this.#log === undefined || this.#log.ask({ type: 'flush' }, { timeout: timeoutMs }).catch(() => false)
    )
  }
}

function settledRequest(
  { decision }: OpenDecision,
  { request, policy }: LoggedDecision,
  delivery: Delivery,
  own: Pick<SettledRequest, 'arrivedAtMs' | 'totalMs' | 'wasTaken'>,
): SettledRequest {
  const { waitedMs, timeToFirstByteMs, streamEvents } = delivery
  const isUnknown = request.unknownPromptReason !== undefined
  // The log is of whole prompts: what slices of the same request left in the cache was computed for it.
  const hasStream = streamEvents !== undefined && timeToFirstByteMs !== undefined
  return {
    ...own,
    promptTokens: isUnknown ? believedTokens(request, delivery.promptTokens ?? 0) : request.promptTokens,
    outputTokens: delivery.completionTokens ?? streamEvents,
    blockSizeTokens: request.blockSizeTokens,
    // A copy: a view would carry its whole buffer to the other thread.
    sequenceHashes: request.sequenceHashes.slice(),
    knowledge: isUnknown ? 'none' : request.textBlocksReason === undefined ? 'tokens' : 'text',
    sessionId: request.sessionId,
    model: request.model,
    worker: decision?.worker,
    policy,
    predictedTokens: Math.max(0, (decision?.predictedTokens ?? 0) - (delivery.sliceTokens ?? 0)),
    cachedTokens: reusedTokens(delivery),
    routerMs: waitedMs,
    firstTokenMs: hasStream ? waitedMs + timeToFirstByteMs : undefined,
    outcome: decision === undefined && delivery.outcome === 'error' ? 'refused' : delivery.outcome,
    error: delivery.error?.code,
    attempts: request.excludedWorkers.length + (decision === undefined ? 0 : 1),
  }
}
