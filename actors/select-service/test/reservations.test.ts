/** Reservations before a router and a tracker that the test plays. */

import { createTestSystem } from '@homing/actor/testing'
import type { RouterMessage } from '@homing/actors/router'
import type { BookedPlace, TrackerMessage } from '@homing/actors/tracker'
import { recordingLog, SimulatedClock } from '@homing/base'
import t, { type Test } from 'tap'
import { Reservations } from '../src/reservations.ts'

const RANK = { isGone: false } as never

function start(t: Test) {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const tracker = system.probe<TrackerMessage>('tracker')
  const router = system.probe<RouterMessage>('router')
  const reservations = new Reservations({
    clock: new SimulatedClock(),
    log: recordingLog(),
    tracker: tracker.ref,
    router: router.ref,
    openMax: 10,
    idleMsMax: 1000,
    askMsMax: 1000,
  })
  /** Answers the next questions, which were asked at the same time. */
  const answer = async (...places: readonly BookedPlace[]): Promise<void> => {
    const asked: Extract<TrackerMessage, { readonly type: 'whereBooked' }>[] = []
    for (const _ of places) {
      const message = await tracker.next()
      if (message.type !== 'whereBooked') throw new Error(message.type)
      asked.push(message)
    }
    for (const [i, place] of places.entries()) asked[i]!.reply([place])
  }
  const reserve = async (id: string): Promise<void> => {
    await reservations.begin('reserve', id)
    reservations.booked('reserve', id, RANK)
  }
  return { system, tracker, router, reservations, answer, reserve }
}

t.test('of two calls that free one id at the same time, one finds it', async t => {
  const { tracker, router, reservations, answer, reserve } = start(t)
  await reserve('a')
  const both = Promise.allSettled([reservations.free('free', 'a'), reservations.free('free', 'a')])
  await answer('here', 'here')
  t.match(await both, [
    { status: 'fulfilled' },
    { status: 'rejected', reason: { code: 'HOMING_SERVICE_NOT_FOUND' } },
  ])
  t.match(await router.next(), { type: 'settled', id: 'a' })
  t.equal(router.waiting.length, 0, 'it is settled once')
  t.strictSame(tracker.waiting, [])
})

t.test('a call does not end what was reserved under its id after it', async t => {
  const { router, reservations, answer, reserve } = start(t)
  await reserve('a')
  const calls = Promise.allSettled([
    reservations.free('free', 'a'),
    reservations.free('free', 'a'),
    reservations.outputBlock('count', 'a', 1),
    reservations.prefillComplete('complete', 'a'),
  ])
  // The first ends it, and its id is reserved again before the others know where it is.
  const first = reservations.begin('reserve', 'a').catch((error: unknown) => error)
  await answer('here', 'here', 'here', 'here', 'here')
  t.match(await first, undefined)
  t.match(await calls, [{ status: 'fulfilled' }, ...Array(3).fill({ status: 'rejected' })])
  t.match(await router.next(), { type: 'settled', id: 'a' })
  t.equal(router.waiting.length, 0)
})

t.test('an id that is freed while it is booked, and found at another replica, is freed there', async t => {
  const { tracker, router, reservations } = start(t)
  await reservations.begin('reserve', 'a')
  await reservations.free('free', 'a')
  reservations.isElsewhere('a')
  t.match(await tracker.next(), { type: 'free', decisionId: 'a' })
  await reservations.begin('reserve', 'b')
  reservations.isElsewhere('b')
  t.strictSame([tracker.waiting.length, router.waiting.length], [0, 0], 'one that was not freed stays')
})
