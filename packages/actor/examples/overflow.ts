/**
 * Overflow: a mailbox has a bound, and four answers to what is one too many. Control messages overtake the
 * others.
 */

import { createActorSystem } from '@homing/actor'
import { slowReader } from './slow-reader.ts'

const system = await createActorSystem({ logLevel: 'silent' })

/** True while messages wait in the mailbox of an actor. */
async function isBusy(name: string): Promise<boolean> {
  return (await system.describe()).some(actor => actor.name === name && actor.mailboxDepth > 0)
}

for (const overflow of ['reject', 'dropOldest', 'dropNewest', 'coalesce'] as const) {
  const gate = new Int32Array(new SharedArrayBuffer(4))
  const ref = system.spawn(slowReader, { name: overflow, mailbox: { capacity: 3, overflow } })
  ref.tell({ type: 'wait', gate })
  await new Promise<void>(resolve => setImmediate(resolve))
  const answers = ['a', 'b', 'a', 'c'].map((key, n) => ref.tell({ type: 'note', key, n }))
  ref.tell({ type: 'urgent' })
  Atomics.store(gate, 0, 1)
  Atomics.notify(gate, 0)
  while (await isBusy(overflow)) await new Promise<void>(resolve => setImmediate(resolve))
  const notes = await ref.ask({ type: 'read' }, { timeout: '5s' })
  console.log(`${overflow}: ${answers.join(' ')}; read: ${notes.join(' ')}`)
}
const { overflow, coalesced } = (await system.stats()).deadLettersByReason
console.log(`dead letters: ${overflow} dropped, ${coalesced} replaced`)

await system.shutdown()
