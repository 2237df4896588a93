import t from 'tap'
import {
  AGREEMENT_REQUESTS,
  Audits,
  CONTRADICTIONS_MIN,
  ERROR_BOUNDS_BLOCKS,
  type Prediction,
  SAMPLE_REQUESTS,
} from '../src/audits.ts'

const BLOCK = 16

function prediction(predictedBlocks: number, extra: Partial<Prediction> = {}): Prediction {
  return {
    worker: 'a/0',
    workerSlot: 3,
    blockSizeTokens: BLOCK,
    predictedTokens: predictedBlocks * BLOCK,
    guessedTokens: 0,
    pooledTokens: 0,
    trust: 'exact',
    epoch: 1,
    ...extra,
  }
}

t.test('a wrong guess contradicts no events, and has a precision of its own', async t => {
  const audits = new Audits()
  // 4 blocks by events and 6 by guess; 5, then 10 are there.
  t.notOk(
    add(audits, 50, 10, 5, { guessedTokens: 6 * BLOCK }).some(([, verdict]) => verdict === 'contradicted'),
  )
  t.strictSame(audits.precision(3).precision, 1)
  t.equal(audits.guessPrecision(3).precision, 1 / 6)
  t.equal(audits.guessPrecision(3).requests, 50)
  add(audits, SAMPLE_REQUESTS, 10, 10, { guessedTokens: 6 * BLOCK })
  t.equal(audits.guessPrecision(3).precision, 1)
  // Less than events said is a contradiction, whatever was guessed.
  t.ok(add(audits, 50, 10, 1, { guessedTokens: 6 * BLOCK }).some(([, verdict]) => verdict === 'contradicted'))
})

t.test('what others have pooled contradicts no events of the worker, and lowers no precision', async t => {
  const audits = new Audits()
  // 4 blocks by events, 2 by guess, 4 in a pool; of those in the pool nothing is there.
  const mixed = { guessedTokens: 2 * BLOCK, pooledTokens: 4 * BLOCK }
  t.notOk(add(audits, 50, 10, 5, mixed).some(([, verdict]) => verdict === 'contradicted'))
  t.equal(audits.precision(3).precision, 1)
  t.equal(audits.guessPrecision(3).precision, 1 / 2)
  // Nor does a prediction of pooled blocks alone.
  t.strictSame(add(new Audits(), 50, 6, 0, { pooledTokens: 6 * BLOCK }), [])
  t.ok(add(audits, 50, 10, 1, mixed).some(([, verdict]) => verdict === 'contradicted'))
})

/** Adds `count` answers; the verdicts that came, with the position of each. */
function add(
  audits: Audits,
  count: number,
  predicted: number,
  delivered: number,
  extra: Partial<Prediction> = {},
) {
  const verdicts: [number, string][] = []
  for (let i = 1; i <= count; i++) {
    const { verdict } = audits.add(prediction(predicted, extra), delivered * BLOCK)
    if (verdict !== undefined) verdicts.push([i, verdict.verdict])
  }
  return verdicts
}

t.test('predictions and deliveries are counted, with the error in blocks', async t => {
  const audits = new Audits()
  audits.add(prediction(10), 10 * BLOCK)
  audits.add(prediction(10), 9 * BLOCK)
  audits.add(prediction(10), 7 * BLOCK)
  audits.add(prediction(2), 8 * BLOCK)
  const [row] = audits.report()
  t.match(row, {
    worker: 'a/0',
    workerSlot: 3,
    state: 'audited',
    requests: 4,
    predictedTokens: 32 * BLOCK,
    deliveredTokens: 34 * BLOCK,
    overPredictions: 1,
    underPredictions: 1,
    errorBlocksSum: -2,
    precision: 28 / 32,
    sampleRequests: 4,
  })
  const at = (bound: (typeof ERROR_BOUNDS_BLOCKS)[number]) =>
    row!.errorCounts[ERROR_BOUNDS_BLOCKS.indexOf(bound)]
  t.strictSame([at(0), at(1), at(4), at(-4)], [1, 1, 1, 1])
})

t.test('an engine that reports no cached tokens is unaudited, and said to be once', async t => {
  const audits = new Audits()
  t.equal(audits.add(prediction(0), undefined).isNewlyUnaudited, false)
  t.equal(audits.report()[0]!.state, 'waiting')
  t.equal(audits.add(prediction(3), undefined).isNewlyUnaudited, true)
  t.equal(audits.add(prediction(3), undefined).isNewlyUnaudited, false)
  t.match(audits.report(), [{ state: 'unaudited', requests: 0, unreported: 3 }])
  // It does report them, but leaves out a 0.
  audits.add(prediction(3), 3 * BLOCK)
  audits.add(prediction(3), undefined)
  t.match(audits.report(), [{ state: 'audited', requests: 2, overPredictions: 1, deliveredTokens: 48 }])
})

t.test('answers that find less than predicted contradict the events', async t => {
  const audits = new Audits()
  t.strictSame(add(audits, CONTRADICTIONS_MIN, 10, 0), [[CONTRADICTIONS_MIN, 'contradicted']])
  t.strictSame(add(audits, CONTRADICTIONS_MIN - 1, 10, 0), [], 'each verdict stands on its own')
  t.ok(audits.precision(3).precision < 0.01)
})

t.test('within the tolerance, and now and then, less is no lie', async t => {
  const audits = new Audits()
  t.strictSame(add(audits, 200, 10, 9).slice(1), [], 'a block on its way')
  for (let turn = 0; turn < 50; turn++) {
    add(audits, 4, 10, 10)
    t.strictSame(add(audits, 1, 10, 3), [], 'one of five: evicted before its turn')
  }
})

t.test('a long good record does not hide what begins to go wrong', async t => {
  const audits = new Audits()
  add(audits, 100_000, 10, 10)
  const [first] = add(audits, SAMPLE_REQUESTS, 10, 0)
  t.ok(first![0] <= SAMPLE_REQUESTS / 2, `contradicted after ${first![0]}`)
})

t.test('a run of answers that agree confirms, once per epoch', async t => {
  const audits = new Audits()
  t.strictSame(add(audits, 100, 10, 10), [[AGREEMENT_REQUESTS, 'confirmed']])
  t.strictSame(add(audits, 100, 10, 10, { epoch: 2 }), [[AGREEMENT_REQUESTS, 'confirmed']])
  t.strictSame(add(audits, 100, 10, 10, { epoch: 1 }), [], 'of an earlier epoch')
})

t.test('what is missing prevents a confirmation, and so does a sample without hits', async t => {
  const audits = new Audits()
  t.strictSame(add(audits, 100, 0, 0), [])
  for (let turn = 0; turn < 20; turn++) {
    t.strictSame(add(audits, AGREEMENT_REQUESTS / 2, 10, 10, { epoch: 2 }), [])
    t.strictSame(add(audits, 2, 10, 20, { epoch: 2 }), [])
  }
})

t.test('a slot that serves another worker key begins anew', async t => {
  const audits = new Audits()
  add(audits, 5, 10, 0)
  audits.add(prediction(1, { worker: 'b/0' }), 1 * BLOCK)
  t.match(audits.report(), [{ worker: 'b/0', requests: 1 }])
  audits.keepOnly(new Map([[3, 'c/0']]))
  t.strictSame(audits.report(), [])
})
