import t from 'tap'
import { ModelRules, mustWait, orderOf, thresholdOf } from '../src/index.ts'

const at = (activePrefillTokens: number, queuedTokens?: number) => ({
  activePrefillTokens,
  queuedTokens,
  batchedTokensMax: 8192,
})

t.test('auto is one engine step under the policy auto, and twice the step under every other', async t => {
  t.same([thresholdOf('auto', true, false), orderOf('auto', true)], ['step', 'response-ratio'])
  t.same([thresholdOf('auto', false, false), orderOf('auto', false)], [2, 'fcfs'])
  t.same([thresholdOf(4, true, false), orderOf('wspt', true)], [4, 'wspt'])
  t.equal(thresholdOf('none', true, true), undefined)
  t.equal(thresholdOf(undefined, true, false), 'step', 'on where it is judged by what is learned')
  t.equal(thresholdOf(undefined, false, false), undefined, 'off under every other policy')
  t.equal(thresholdOf(undefined, false, true), 2, 'on where tenants have weights')
  const rules = (threshold: 'step' | number) =>
    new ModelRules('', { threshold, order: 'fcfs', classes: undefined })
  t.same(
    [rules('step').mayWait, rules('step').isInSteps],
    [true, false],
    'a step is what the load model says',
  )
  t.same([rules(2).mayWait, rules(2).isInSteps], [true, true])
})

t.test('a request waits only while all workers are past the rule', async t => {
  const waits = (threshold: 'none' | 'auto' | number, isAuto: boolean, workers: ReturnType<typeof at>[]) => {
    const rules = new ModelRules('m', {
      threshold: thresholdOf(threshold, isAuto, false),
      order: 'fcfs',
      classes: undefined,
    })
    return mustWait(rules.ofClass('default'), 100, workers.length, i => workers[i]!)
  }
  t.equal(waits(1, false, [at(8193), at(8192)]), false)
  t.equal(waits(1, false, [at(8193), at(8193)]), true)
  t.equal(waits('auto', true, [at(8193, 8191), at(8193, 8192)]), false)
  t.equal(waits('auto', true, [at(0, 8192), at(0, 8192)]), true)
  t.equal(waits('none', true, [at(1e9, 1e9)]), false)
  t.equal(waits(1, false, []), false, 'without a worker the router says so')
})
