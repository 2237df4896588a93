import t from 'tap'
import { AGREEMENTS, type CountedKind, DIFFERENCES, PromptCounts } from '../src/index.ts'

const KIND: CountedKind = { workerId: 'w', promptsEpoch: 0, model: 'm', route: 'chat', by: 'router' }

function fixture() {
  const counts = new PromptCounts()
  const add = (promptTokens: number, kind: Partial<CountedKind> = {}, cachedTokens?: number) =>
    counts.add({ ...KIND, ...kind }, 100, { promptTokens, cachedTokens })
  const times = (count: number, promptTokens: number, kind: Partial<CountedKind> = {}) =>
    Array.from({ length: count }, () => add(promptTokens, kind)?.verdict?.verdict).filter(Boolean)
  return { counts, add, times }
}

t.test('a few answers that count other tokens are a difference, and it is said again', async t => {
  const { add, times } = fixture()
  t.strictSame(times(DIFFERENCES - 1, 97), [])
  t.match(add(103), { isSame: false, verdict: { verdict: 'differs', reason: /103 where 100/ } })
  t.strictSame(times(DIFFERENCES, 97), ['differs'])
})

t.test('answers that agree between them change nothing, unless they are many in a row', async t => {
  const { times } = fixture()
  for (let i = 0; i < DIFFERENCES - 1; i++) t.strictSame([...times(1, 97), ...times(AGREEMENTS - 1, 100)], [])
  t.strictSame(times(1, 97), ['differs'], 'a template may differ for some chats only')
  const other = fixture()
  for (let i = 0; i < 10; i++) t.strictSame([...other.times(1, 97), ...other.times(AGREEMENTS, 100)], [])
})

t.test('it ends with a run of answers that agree', async t => {
  const { times } = fixture()
  t.strictSame(times(AGREEMENTS, 100), [], 'what never differed is no news')
  times(DIFFERENCES, 97)
  t.strictSame(times(AGREEMENTS - 1, 100), [])
  t.strictSame(times(1, 100), ['agrees'])
})

t.test('the cached part may be counted apart, and 0 says nothing', async t => {
  const { add } = fixture()
  t.match(add(36, {}, 64), { isSame: true })
  t.match(add(36, {}, 32), { isSame: false })
  t.equal(add(0), undefined)
})

t.test('each kind is counted apart, and another process begins anew', async t => {
  const { counts, times } = fixture()
  for (const kind of [{ route: 'completions' }, { model: 'n' }, { workerId: 'x' }, { by: 'engine' }] as const)
    t.strictSame(times(DIFFERENCES - 1, 97, kind), [])
  t.strictSame(times(DIFFERENCES - 1, 97), [])
  t.strictSame(times(DIFFERENCES - 1, 97, { promptsEpoch: 1 }), [])
  t.strictSame(times(1, 97, { promptsEpoch: 1 }), ['differs'])
  t.strictSame(times(1, 97, { workerId: 'x' }), ['differs'])
  times(DIFFERENCES - 1, 97, { workerId: 'x' })
  counts.keepOnly(new Set(['w']))
  t.strictSame(times(1, 97, { workerId: 'x' }), [], 'one that has left is forgotten')
})
