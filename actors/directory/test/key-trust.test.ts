/** How far a worker key is trusted: by its source, by the answers of its engine, and by its silence. */

import type { Churn } from '@homing/actors/indexer'
import t, { type Test } from 'tap'
import { EVENTS, utf8, world } from './directory-world.ts'

const NO_CHURN: Churn = { removedBlocks: 0, repeatedBlocks: 0 }

/** A fleet of one, whose source is exact, and what its answers say of it. */
async function audited(t: Test) {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS })
  await w.publisher('tcp://10.0.0.1:5557')
  await w.replaySocket('tcp://10.0.0.1:5558')
  await w.begin(['http://10.0.0.1:8000'])
  const key = () => w.worker().keys[0]!
  const clears = () => w.indexers[0]!.waiting.filter(({ type }) => type === 'clear').length
  /** `churn`: what the indexer says of it; null: it does not answer. */
  const audit = async (
    verdict: 'contradicted' | 'confirmed',
    churn: Churn | null = NO_CHURN,
    epoch = key().epoch,
  ) => {
    const missingBlocks = verdict === 'contradicted' ? 40 : 0
    w.ref.tell({ type: 'audit', workerSlot: 0, epoch, verdict, missingBlocks, reason: '4 of 5 answers' })
    await w.system.settle()
    const asked = w.indexers[0]!.waiting.filter(message => message.type === 'takeChurn').at(-1)
    if (asked?.type === 'takeChurn' && churn !== null) asked.reply(churn)
    await w.system.settle()
  }
  t.equal(key().trust, 'exact')
  return { w, key, clears, audit }
}

t.test('answers that contradict the events lower the trust, and have the source rebuilt', async t => {
  const { w, key, clears, audit } = await audited(t)
  const [epoch, cleared] = [key().epoch, clears()]
  await audit('contradicted', NO_CHURN, epoch - 1)
  t.equal(key().trust, 'exact', 'a verdict on an earlier epoch says nothing')

  await w.system.advance(10_000)
  await audit('contradicted')
  t.match(key(), { trust: 'partial', trustReason: /^4 of 5 answers; every batch/, epoch: epoch + 1 })
  t.equal(clears(), cleared + 1)
  await audit('contradicted')
  t.equal(clears(), cleared + 1, 'at most one rebuild a minute')
  await w.system.advance(60_000)
  await audit('contradicted')
  t.equal(clears(), cleared + 2)
  t.equal(key().trust, 'partial')
  await audit('confirmed')
  t.match(key(), { trust: 'exact', trustReason: /^every batch/ })
})

t.test('what was evicted before its turn contradicts no events, as long as they tell of it', async t => {
  const { w, key, clears, audit } = await audited(t)
  const cleared = clears()
  await w.system.advance(10_000)
  await audit('contradicted', { removedBlocks: 40, repeatedBlocks: 19 })
  t.equal(key().trust, 'exact')
  t.equal(clears(), cleared)
  await audit('contradicted', { removedBlocks: 39, repeatedBlocks: 0 })
  t.equal(key().trust, 'partial', 'they tell of fewer than were missing')
  await audit('confirmed')
  t.equal(key().trust, 'exact')
  await audit('contradicted', { removedBlocks: 4000, repeatedBlocks: 20 })
  t.equal(key().trust, 'partial', 'the engine computed what counted as held')
  await audit('confirmed')
  t.equal(key().trust, 'exact')
  await audit('contradicted', null)
  t.equal(key().trust, 'exact', 'the indexer is asked')
  await w.system.advance(5000)
  t.equal(key().trust, 'partial', 'an indexer that does not answer excuses nothing')
})

t.test('a source that says nothing though its engine computes is partial until it does', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS })
  const publisher = await w.publisher('tcp://10.0.0.1:5557')
  await w.replaySocket('tcp://10.0.0.1:5558')
  await w.begin(['http://10.0.0.1:8000'])
  const key = () => w.worker().keys[0]!
  const computed = async (epoch = key().epoch) => {
    w.ref.tell({ type: 'computed', workerSlot: 0, epoch, durationMs: 300 })
    await w.system.settle()
  }
  let sequence = 0
  const publish = async () => {
    // [1, [['AllBlocksCleared']]]
    const payload = Uint8Array.of(0x92, 1, 0x91, 0x91, 0xb0, ...utf8.encode('AllBlocksCleared'))
    publisher.send([utf8.encode('kv-events'), new Uint8Array(8).fill(sequence++, 7), payload])
    await w.system.settle()
  }
  await computed(key().epoch - 1)
  await w.system.advance(10_000)
  t.equal(key().trust, 'exact', 'what was computed in an earlier epoch says nothing')
  await computed()
  await publish()
  await w.system.advance(10_000)
  t.equal(key().trust, 'exact', 'it was said in time')

  await computed()
  await w.system.advance(3000)
  t.equal(key().trust, 'exact', 'for two probe intervals it is waited for')
  await w.system.advance(1100)
  t.match(key(), { trust: 'partial', trustReason: /^it has computed blocks and published none/ })
  await computed()
  await w.system.advance(10_000)
  t.equal(key().trust, 'partial')
  await publish()
  await w.system.advance(4100)
  t.equal(key().trust, 'exact', 'it publishes again')

  await computed()
  await w.system.advance(5000)
  t.equal(key().trust, 'partial')
  w.answers.set('10.0.0.1', { events: EVENTS, startSeconds: 2000 })
  await w.system.advance(12_000)
  t.match(key(), { trust: 'exact' }, 'another process owes nothing')
})

t.test('answers that agree make a history without a beginning exact, until it begins anew', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS })
  const publisher = await w.publisher('tcp://10.0.0.1:5557')
  await w.begin(['http://10.0.0.1:8000'])
  const say = async (epoch: number, trust: 'partial' | 'none', isSuffix: boolean) => {
    const said = { trust, reason: 'older blocks are unknown', epoch, isSuffix }
    w.ref.tell({ type: 'source', workerSlot: 0, ...said, blockSizeTokens: undefined })
    await w.system.settle()
  }
  const confirm = async () => {
    const { epoch } = w.worker().keys[0]!
    w.ref.tell({
      type: 'audit',
      workerSlot: 0,
      epoch,
      verdict: 'confirmed',
      missingBlocks: 0,
      reason: '32 answers agree',
    })
    await w.system.settle()
  }
  await say(7, 'partial', true)
  t.equal(w.worker().keys[0]!.trust, 'partial')
  await confirm()
  t.match(w.worker().keys[0], {
    trust: 'exact',
    trustReason: '32 answers agree; before that, older blocks are unknown',
  })
  await say(7, 'partial', false)
  t.equal(w.worker().keys[0]!.trust, 'partial', 'what could not be read may be a removal')
  await say(7, 'partial', true)
  await say(8, 'none', false)
  await say(8, 'partial', true)
  t.equal(w.worker().keys[0]!.trust, 'partial', 'the next epoch was not confirmed')
  publisher.close()
})
