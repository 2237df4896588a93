/**
 * Guardian: starts the router's actors in order, keeps them running, stops them in reverse.
 *
 * In     `whenReady` and `drain` from the program; from the directory, what it wants kept over its lives.
 * Out    spawns everything else. Periodically renews the subscriptions to the fleet, tells the gateway that the start is over, and
 *        tells the console its gateway, so that these survive restarts of either side.
 * Owns   workers and busy thresholds as they were set at run time; the order: indexers, directory, tracker, tokenizer, decision log, router, replica bridge, queue, console, gateway. Each gets the
 *        refs of those before it. Stopping goes the other way, so nobody sends messages to a stopped actor.
 * Fails  a child that fails is restarted under its own budget. A child whose budget is used up fails the
 *        guardian, and with it the process: a router without one of its parts is worse than one that is
 *        restarted. The runtime replaces a thread that dies, with its actors. A gateway or
 *        console that cannot listen at the first start is reported, not retried. The budgets of the console and of the decision log
 *        are practically unlimited, because requests do not need them.
 */

import { defineActor, isThreadLoss, type Reply, signal } from '@homing/actor'
import type { Kept } from '@homing/actors/directory'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import { transportCapability } from '@homing/transport'
import { spawnAll } from './children.ts'
import { ActorLostError } from './errors.ts'
import type { GuardianArgs } from './guardian-args.ts'
import type { GuardianMessage, ReadyReport } from './messages.ts'

const RENEW_INTERVAL_MS = 1000
const WATCH_AGAIN_MS = 100

export const guardian = defineActor(
  import.meta.url,
  'guardian',
)<GuardianMessage, GuardianArgs>({
  reentrant: true,
  setup(context, args) {
    if (args.engineCertificates !== undefined)
      context.use(transportCapability).http.trust(args.engineCertificates)
    const children = spawnAll(context, args)
    let ready: ReadyReport | ErrorRecord | undefined
    let kept: Kept = { busyThresholds: new Map(), fleet: undefined }
    const waiting: Reply<ReadyReport | ErrorRecord>[] = []
    const settleReady = (outcome: ReadyReport | ErrorRecord): void => {
      ready = outcome
      for (const reply of waiting.splice(0)) reply(outcome)
    }

    const tellStarted = (): void => {
      if (ready !== undefined && !('code' in ready)) children.started()
    }

    children.renewSubscriptions()
    context.schedule(RENEW_INTERVAL_MS, { type: 'renewSubscriptions' })
    context.pipe(
      children.whenReady(),
      report => ({ type: 'ready', outcome: report }),
      thrown => ({ type: 'ready', outcome: toErrorRecord(thrown) }),
    )

    return {
      whenReady({ reply }) {
        if (ready === undefined) waiting.push(reply)
        else reply(ready)
      },
      ready({ outcome }) {
        // The gateway's own failure says more than the ask that it left unanswered.
        if (ready === undefined) settleReady(outcome)
        // After the program, which tells of it first.
        tellStarted()
      },
      renewSubscriptions() {
        children.renewSubscriptions()
        tellStarted()
        context.schedule(RENEW_INTERVAL_MS, { type: 'renewSubscriptions' })
      },
      keepBusyThresholds({ byModel }) {
        kept = { ...kept, busyThresholds: byModel }
      },
      keepFleet({ fleet }) {
        kept = { ...kept, fleet }
      },
      kept({ reply }) {
        reply(kept)
      },
      watchAgain({ child }) {
        context.watch(child)
      },
      async drain({ graceMs, reply }) {
        reply(await children.drain(graceMs))
      },
      [signal](event) {
        if (event.type !== 'terminated') return
        // Its thread is being replaced, and the actor started there again under the same ref; one that
        // is not is `unreachable` at the next look. Later, since a dead thread answers a watch at once.
        if (isThreadLoss(event.reason)) {
          context.schedule(WATCH_AGAIN_MS, { type: 'watchAgain', child: event.ref })
          return
        }
        const why = event.error ?? new ActorLostError(event.ref.name, event.reason)
        if (ready === undefined) settleReady(toErrorRecord(why))
        else if (!('code' in ready)) throw new ActorLostError(event.ref.name, why.message)
      },
    }
  },
})
