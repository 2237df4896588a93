import t from 'tap'
import { COLUMN_NAMES, FIXED_COLUMNS, parseColumn } from '../src/index.ts'

t.test('every policy has a name, and others know it by older ones', async t => {
  for (const name of COLUMN_NAMES) t.equal(parseColumn(name).name, name)
  t.ok(FIXED_COLUMNS.every(name => COLUMN_NAMES.includes(name)))
  t.equal(parseColumn('kv-cost').name, 'linear')
  t.equal(parseColumn('least').name, 'least-loaded')
  t.equal(parseColumn('p2c').name, 'power-of-two')
})

t.test('linear takes a weight, and every policy can see the true state', async t => {
  t.match(parseColumn('linear:8'), { name: 'linear:8', selection: { policy: 'linear', overlapWeight: 8 } })
  t.match(parseColumn('kv-cost:0.5'), { name: 'linear:0.5', selection: { overlapWeight: 0.5 } })
  t.match(parseColumn('product@oracle'), {
    name: 'product@oracle',
    selection: { policy: 'product', oracleView: true },
  })
})

t.test('auto can go without any of its terms, to see what they are worth', async t => {
  t.match(parseColumn('auto:without-evict_ms'), {
    name: 'auto:without-evict_ms',
    selection: { policy: 'auto', withoutTerm: 'evict_ms' },
  })
})

t.test('an unknown policy is told with those that there are', async t => {
  for (const [text, message] of [
    ['fastest', /cannot simulate the policy "fastest": use random, round-robin/],
    ['', /cannot simulate the policy "": use/],
    ['product:3', /only linear has a weight, as in linear:8/],
    ['linear:', /the weight "" is not a number within 0 … 1000000/],
    ['linear:-1', /the weight "-1" is not a number/],
    ['auto@oracle', /auto counts on what it has learned itself/],
    ['auto:without-luck', /the terms of auto are wait_ms, prefill_ms, /],
    ['auto:3', /only linear has a weight/],
    ['linear@all', /"all" is no way to know/],
  ] as const) {
    t.throws(() => parseColumn(text), { code: 'HOMING_SIMULATE_UNKNOWN_POLICY', message }, text)
  }
})
