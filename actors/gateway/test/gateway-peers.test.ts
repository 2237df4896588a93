/** What gateways on several threads tell each other. */

import { type ActorRef, defineActor } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import t, { type Test } from 'tap'
import { DeadlyPrompts } from '../src/deadly-prompts.ts'
import { GatewayPeers } from '../src/gateway-peers.ts'
import type { PeerMessage } from '../src/messages.ts'
import type { Held } from '../src/response-holders.ts'

const HELD: Held = { workerId: 'w', joinedMs: 5, dpRank: undefined }

/** Answers as given; 'silent': not at all. */
const scriptedPeer = defineActor(
  import.meta.url,
  'scriptedPeer',
)<PeerMessage, { readonly held: Held | undefined | 'silent' }>({
  setup(_, { held }) {
    return {
      heldOf({ reply }) {
        if (held !== 'silent') reply(held)
      },
      responseHeld() {},
      promptBroke() {},
      promptServed() {},
    }
  },
})

function peersOf(t: Test, answers: readonly (Held | undefined | 'silent')[]) {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const refs: ActorRef<PeerMessage>[] = answers.map((held, index) =>
    system.spawn(scriptedPeer, { name: `gateway-${index}`, args: { held } }),
  )
  return { system, peers: new GatewayPeers(refs), refs }
}

t.test('the first that knows a response answers, and no one waits for the silent ones', async t => {
  const { system, peers } = peersOf(t, [undefined, 'silent', HELD])
  const found = peers.heldOf('resp_1')
  await system.settle()
  t.strictSame(await found, HELD)
})

t.test('where none knows it, or the others are gone or silent, it is not known', async t => {
  const { system, peers, refs } = peersOf(t, [undefined, 'silent', HELD])
  const gone = system.stop(refs[2]!)
  await system.settle()
  await gone
  const found = peers.heldOf('resp_1')
  await system.advance('2s')
  t.equal(await found, undefined)
  t.equal(await new GatewayPeers([]).heldOf('resp_1'), undefined)
})

t.test('a body that broke one worker at each of two gateways is refused at both', async t => {
  const [one, other]: [DeadlyPrompts, DeadlyPrompts] = [
    new DeadlyPrompts(word => other.heard(word, 0)),
    new DeadlyPrompts(word => one.heard(word, 0)),
  ]
  const body = new TextEncoder().encode('a deadly prompt')
  one.broke(body, 'w1', 0)
  t.equal(other.brokenBy(body, 0), undefined, 'one break is no proof')
  other.broke(body, 'w2', 0)
  t.strictSame(one.brokenBy(body, 0)?.toSorted(), ['w1', 'w2'])
  t.strictSame(other.brokenBy(body, 0)?.toSorted(), ['w1', 'w2'])
  one.served(body)
  t.equal(other.brokenBy(body, 0), undefined, 'one that is served is forgotten by both')
})
