/** Which replicas a service has its bridge follow, before a bridge that the test plays. */

import { createTestSystem } from '@homing/actor/testing'
import { recordingLog } from '@homing/base'
import t, { type Test } from 'tap'
import { FollowedPeers, type ReplicaBridgeMessage } from '../src/index.ts'

const A = 'tcp://a:5800'
const B = 'tcp://b:5800'
const ASK_MS_MAX = 1000

function start(t: Test) {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const bridge = system.probe<ReplicaBridgeMessage>('bridge')
  const options = { bridge: bridge.ref, log: recordingLog(), askMsMax: ASK_MS_MAX }
  return { system, bridge, peers: new FollowedPeers({ ...options, peers: [A] }) }
}

t.test('a bridge is told all peers, and no others', async t => {
  const { bridge, peers } = start(t)
  peers.renew()
  t.match(await bridge.next(), { type: 'followOnly', endpoints: [A] })
  const followed = peers.follow(B)
  // It may look for its peers before it has answered.
  peers.renew()
  const asked = await bridge.next()
  if (asked.type !== 'follow') return t.fail(asked.type)
  t.match(await bridge.next(), { type: 'followOnly', endpoints: [A, B] })
  asked.reply('followed')
  await followed
  t.strictSame(peers.endpoints, [A, B])
  for (const outcome of ['full', 'itself'] as const) {
    const refused = peers.follow('tcp://c:5800')
    const question = await bridge.next()
    if (question.type !== 'follow') return t.fail(question.type)
    question.reply(outcome)
    await t.rejects(refused)
    t.strictSame(peers.endpoints, [A, B], outcome)
  }
})

t.test('a peer that was deregistered does not come back, and one whose bridge is silent stays', async t => {
  const { system, bridge, peers } = start(t)
  const silent = t.rejects(peers.unfollow(A), { code: 'HOMING_ACTOR_ASK_TIMEOUT' })
  await system.advance(ASK_MS_MAX)
  await silent
  t.match(await bridge.next(), { type: 'unfollow', endpoint: A })
  t.strictSame(peers.endpoints, [A], 'it can be deregistered again')
  const gone = peers.unfollow(A)
  peers.renew()
  const asked = await bridge.next()
  if (asked.type !== 'unfollow') return t.fail(asked.type)
  t.match(await bridge.next(), { type: 'followOnly', endpoints: [] })
  asked.reply(true)
  await gone
  await t.rejects(peers.unfollow(A), { code: 'HOMING_SERVICE_NOT_FOUND' })
})

t.test('what is said at the same time of one peer is said in turn, and the last word holds', async t => {
  const { bridge, peers } = start(t)
  const first = peers.follow(B)
  const second = peers.follow(B)
  const asked = await bridge.next()
  if (asked.type !== 'follow') return t.fail(asked.type)
  t.equal(bridge.waiting.length, 0, 'the second waits')
  asked.reply('full')
  await t.rejects(first, { code: 'HOMING_SERVICE_FULL' })
  const again = await bridge.next()
  if (again.type !== 'follow') return t.fail(again.type)
  again.reply('followed')
  await second
  t.strictSame(peers.endpoints, [A, B], 'the bridge follows it')
})
