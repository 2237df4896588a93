/**
 * Guardian: starts the router's actors in order, keeps them running, stops them in reverse.
 *
 * In     `whenReady`, `parts`, `leave` and `drain` from the program; from the directory and the router, state
 *        to keep over their restarts, and from the tracker what it has learned.
 * Out    spawns everything else. Periodically renews the subscriptions to the fleet, tells the gateway that
 *        the start is over, and tells the console its gateway, so that these survive restarts of either side.
 * Owns   workers and busy thresholds as they were set at run time; the order: indexers, directory, tracker,
 *        tokenizer, decision log, router, replica bridge, queue, console, gateway. Each gets the refs of
 *        those before it. Stopping is in reverse order, so no actor sends messages to a stopped actor.
 * Fails  a child that fails is restarted under its own budget. A child whose budget is used up fails the
 *        guardian, and with it the process: a router without one of its parts is worse than one that is
 *        restarted. The runtime replaces a thread that dies, with its actors. A gateway or console that
 *        cannot listen at the first start is reported, not retried. The budgets of the console and of the
 *        decision log are practically unlimited, because requests do not need them.
 */

import {
  type ActorContext,
  defineActor,
  isThreadLoss,
  type Reply,
  signal,
  type Terminated,
} from '@homing/actor'
import type { Kept } from '@homing/actors/directory'
import type { LearnedImage } from '@homing/actors/tracker'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { RoutingGuardState } from '@homing/placement'
import { transportCapability } from '@homing/transport'
import { type Children, spawnChildren } from './children.ts'
import { ActorLostError } from './errors.ts'
import type { GuardianArgs } from './guardian-args.ts'
import type { GuardianMessage, ReadyReport } from './messages.ts'
import { drain, renewSubscriptions, tellStarted, whenReady } from './start-and-end.ts'

const RENEW_INTERVAL_MS = 1000
const WATCH_AGAIN_MS = 100

export const guardian = defineActor(
  import.meta.url,
  'guardian',
)<GuardianMessage, GuardianArgs>({
  reentrant: true,
  setup(context, args) {
    const { engineCertificates } = args.inputs
    const { checkpointDirectory, learnedFile } = args.settings
    const kept = { checkpoints: checkpointDirectory !== undefined, learned: learnedFile !== undefined }
    if (engineCertificates !== undefined) context.use(transportCapability).http.trust(engineCertificates)
    const state = new Guardian(context, spawnChildren(context, args))
    state.start()
    return {
      whenReady: ({ reply }) => state.whenReady(reply),
      parts({ reply }) {
        const { gateways, directory, indexers } = state.children
        reply({ gateway: gateways[0]!, directory, indexers })
      },
      ready: ({ outcome }) => state.settled(outcome),
      renewSubscriptions: () => state.renew(),
      keepBusyThresholds: ({ byModel }) => state.keep({ busyThresholds: byModel }),
      keepFleet: ({ fleet }) => state.keep({ fleet }),
      kept: ({ reply }) => reply(state.kept),
      keepGuard: ({ guard }) => state.keepGuard(guard),
      keptGuard: ({ reply }) => reply(state.keptGuard),
      keepLearned: ({ image }) => {
        state.learned = image
      },
      keptLearned: ({ reply }) => reply(state.learned),
      watchAgain: ({ child }) => context.watch(child),
      leave() {
        for (const gateway of state.children.gateways) gateway.tell({ type: 'leave' })
      },
      gateways: ({ reply }) => reply(state.children.gateways),
      drain: async ({ graceMs, reply }) => reply(await drain(context, state.children, graceMs, kept)),
      [signal](event) {
        if (event.type === 'terminated') state.childEnded(event)
      },
    }
  },
})

class Guardian {
  readonly children: Children
  /** What the tracker has learned, kept over its restarts. */
  learned: LearnedImage | undefined
  readonly #context: ActorContext<GuardianMessage>
  /** Undefined: the start is under way. */
  #ready: ReadyReport | ErrorRecord | undefined
  #waiting: Reply<ReadyReport | ErrorRecord>[] = []
  #kept: Kept = { busyThresholds: new Map(), fleet: undefined }

  /** What the router's guard knows, over restarts of the router; undefined: nothing yet. */
  #keptGuard: RoutingGuardState | undefined

  constructor(context: ActorContext<GuardianMessage>, children: Children) {
    this.#context = context
    this.children = children
  }

  /** The directory's state that is kept over its restarts. */
  get kept(): Kept {
    return this.#kept
  }

  get keptGuard(): RoutingGuardState | undefined {
    return this.#keptGuard
  }

  keepGuard(guard: RoutingGuardState): void {
    this.#keptGuard = guard
  }

  start(): void {
    this.renew()
    this.#context.pipe(
      whenReady(this.#context, this.children),
      report => ({ type: 'ready', outcome: report }),
      thrown => ({ type: 'ready', outcome: toErrorRecord(thrown) }),
    )
  }

  whenReady(reply: Reply<ReadyReport | ErrorRecord>): void {
    if (this.#ready === undefined) this.#waiting.push(reply)
    else reply(this.#ready)
  }

  settled(outcome: ReadyReport | ErrorRecord): void {
    // The gateway's own failure explains more than the unanswered ask.
    if (this.#ready === undefined) this.#settle(outcome)
    // After the program, which reports the start first.
    this.#tellStarted()
  }

  renew(): void {
    renewSubscriptions(this.children)
    this.#tellStarted()
    this.#context.schedule(RENEW_INTERVAL_MS, { type: 'renewSubscriptions' })
  }

  keep(changed: Partial<Kept>): void {
    this.#kept = { ...this.#kept, ...changed }
  }

  childEnded({ ref, reason, error }: Terminated): void {
    // Its thread is being replaced, and the actor started there again under the same ref; one that
    // is not is `unreachable` at the next look. Later, since a dead thread answers a watch at once.
    if (isThreadLoss(reason)) {
      this.#context.schedule(WATCH_AGAIN_MS, { type: 'watchAgain', child: ref })
      return
    }
    const why = error ?? new ActorLostError(ref.name, reason)
    if (this.#ready === undefined) this.#settle(toErrorRecord(why))
    else if (!('code' in this.#ready)) throw new ActorLostError(ref.name, why.message)
  }

  #settle(outcome: ReadyReport | ErrorRecord): void {
    this.#ready = outcome
    for (const reply of this.#waiting.splice(0)) reply(outcome)
  }

  #tellStarted(): void {
    if (this.#ready !== undefined && !('code' in this.#ready)) tellStarted(this.children)
  }
}
