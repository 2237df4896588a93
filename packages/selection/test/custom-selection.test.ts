import assert from 'node:assert/strict'
import { type Random, seededRandom } from '@homing/base'
import t from 'tap'
import {
  type Candidates,
  CustomPolicy,
  type CustomSelection,
  defineSelection,
  Selector,
  selectionSettings,
} from '../src/index.ts'

const request = { promptTokens: 160, blockSizeTokens: 16, model: 'm' }
const noRandom: Random = {
  next: () => assert.fail('nothing to draw'),
  below: () => assert.fail('nothing to draw'),
  bytes: () => assert.fail('nothing to draw'),
}
const candidates: Candidates = {
  count: 3,
  workerSlots: Int32Array.of(0, 1, 2),
  overlapBlocks: Int32Array.of(4, 0, 9),
  creditFactors: Float64Array.of(1, 1, 1),
  activeBlocks: Int32Array.of(1, 2, 3),
  newBlocks: Int32Array.of(6, 10, 1),
  activePrefillTokens: Float64Array.of(0, 0, 100),
  activeRequests: Int32Array.of(5, 1, 2),
  preferences: Float64Array.of(1, 0.5, 1),
  nameOf: i => ({ worker: `w${i}`, instanceId: i, dpRank: 0, taints: [`taint-${i}`] }),
}

function settingsOf(selection: CustomSelection, temperature = 0) {
  return selectionSettings({ custom: new CustomPolicy(selection), temperature })
}

t.test('a score is the cost, of everything that is known of a candidate', async t => {
  const seen: unknown[] = []
  const selection = defineSelection({
    name: 'mine',
    unit: 'tokens',
    score(candidate, asked) {
      seen.push([candidate, asked])
      return candidate.prefillTokens
    },
  })
  const choice = new Selector().choose(candidates, request, settingsOf(selection), noRandom)
  t.equal(choice.winner, 0)
  t.strictSame([...choice.terms.cost.subarray(0, 3)], [96, 160, 116])
  t.strictSame(seen[2], [
    {
      worker: 'w2',
      instanceId: 2,
      dpRank: 0,
      taints: ['taint-2'],
      preference: 1,
      overlapBlocks: 9,
      creditFactor: 1,
      newTokens: 16,
      queuedPrefillTokens: 100,
      prefillTokens: 116,
      activeBlocks: 3,
      newBlocks: 1,
      activeRequests: 2,
    },
    { model: 'm', isPromptKnown: true, promptTokens: 160, blockSizeTokens: 16 },
  ])
})

t.test('the temperature draws over scores, and pick takes the place of both', async t => {
  const score = ({ activeRequests }: { activeRequests: number }): number => activeRequests
  const warm = settingsOf({ name: 'mine', unit: '', score }, 0.7)
  const choice = new Selector().choose(candidates, request, warm, seededRandom(1))
  t.ok(choice.terms.probability[0]! > 0 && choice.terms.probability[0]! < choice.terms.probability[1]!)
  const picked = settingsOf({ name: 'mine', unit: '', score, pick: (_, costs) => costs.indexOf(5) }, 0.7)
  const choice2 = new Selector().choose(candidates, request, picked, noRandom)
  t.equal(choice2.winner, 0)
  t.strictSame([...choice2.terms.probability.subarray(0, 3)], [1, 0, 0])
})

t.test('a filter says of each candidate whether it may take the request', async t => {
  const score = (): number => 0
  const filter = ({ newTokens }: { newTokens: number }): boolean => newTokens < 100
  const selector = new Selector(1)
  t.strictSame(
    selector.eligible(candidates, request, settingsOf({ name: 'mine', unit: '', filter, score })),
    [true, false, true],
  )
  t.equal(selector.eligible(candidates, request, settingsOf({ name: 'mine', unit: '', score })), undefined)
  t.equal(selector.eligible(candidates, request, selectionSettings()), undefined)
})

t.test('what is no selection is refused where it is defined', async t => {
  t.throws(() => defineSelection({ name: '', unit: '', score: () => 0 }), /cannot define a selection: name/)
  t.throws(() => defineSelection({ name: 'x', unit: '' } as never), /score is not a function/)
})
