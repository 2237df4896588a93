/** Bodies of messages on the object lane of a ring, when threads die at the wrong moment. */

import { MessageChannel, type MessagePort, receiveMessageOnPort } from 'node:worker_threads'
import t from 'tap'
import { OP, type PeerAddress } from '../../src/links/frames.ts'
import type { Frame, LinkHandlers } from '../../src/links/link.ts'
import { ringBytes } from '../../src/links/ring/ring.ts'
import { RingLink } from '../../src/links/ring/ring-link.ts'
import { makeRuntime } from '../linked-runtimes.ts'

function outbound() {
  const [out, back] = [new SharedArrayBuffer(ringBytes(1024)), new SharedArrayBuffer(ringBytes(1024))]
  const unsendable: number[] = []
  const handlers: LinkHandlers = {
    onFrame() {},
    onBatch: () => true,
    handedOver: () => 0,
    isHandled: () => true,
    onSilent() {},
    onClosed() {},
    onUnsendable: frame => void unsendable.push(frame.target),
    onUnreadable() {},
  }
  const life = (uid: number): { address: PeerAddress; far: MessagePort } => {
    const { port1, port2 } = new MessageChannel()
    return { address: { name: 'far', uid, port: port1, out, in: back, isHeir: false }, far: port2 }
  }
  return { handlers, life, unsendable }
}

function tell(target: number, transfer?: Frame['transfer']): Frame {
  const body = { type: 'note', n: target }
  return { op: OP.TELL, target, corr: 0, body, patches: 0, ...(transfer === undefined ? {} : { transfer }) }
}

/** Everything that was posted to the other side, batches of bodies as their first number and count. */
function posts(port: MessagePort): unknown[] {
  const all: unknown[] = []
  for (let post = receiveMessageOnPort(port); post !== undefined; post = receiveMessageOnPort(port)) {
    all.push(Array.isArray(post.message) ? post.message : Object.keys(post.message as object))
  }
  return all
}

const nextRound = () => new Promise<void>(resolve => setImmediate(resolve))

t.test('an heir that may read the ring has the bodies of what waits there', async t => {
  const { handlers, life } = outbound()
  const first = life(2)
  const link = new RingLink(first.address, 1, handlers, makeRuntime('near', 1).counts)
  for (const n of [1, 2, 3]) link.offer(tell(n))
  await nextRound()
  first.far.close()
  link.close()
  const second = life(3)
  link.reopen(second.address, handlers)
  await nextRound()
  const [bodies, resumption] = posts(second.far)
  t.equal((bodies as unknown[])[0], 0, 'the bodies, from number 0 on')
  t.strictSame(resumption, ['type'], 'and then the word that lets it read')
  second.far.close()
})

t.test('a body whose port is closed by now takes no other with it', async t => {
  const { handlers, life, unsendable } = outbound()
  const { address, far } = life(2)
  const link = new RingLink(address, 1, handlers, makeRuntime('near', 1).counts)
  const { port1: closed } = new MessageChannel()
  closed.close()
  await nextRound()
  link.offer(tell(1))
  link.offer(tell(2, [closed]))
  link.offer(tell(3))
  await nextRound()
  t.strictSame(unsendable, [2])
  t.strictSame(posts(far), [
    [0, { type: 'note', n: 1 }, 0],
    [1, null, -1],
    [2, { type: 'note', n: 3 }, 0],
  ])
  far.close()
})
