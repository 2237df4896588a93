import t from 'tap'
import { BadPolicyClassesError, parsePolicyClasses } from '../src/index.ts'

const GOOD = `default_policy_family: chat
uncached_isl_buckets:
  - min_tokens: 0
    bucket: all
policy_classes:
  - name: chat
    policy_family: chat
    cache_bucket: all
    queue_policy: wspt
    quantum: 100
    prefill_busy_threshold: 5000
    prefill_busy_threshold_frac: 1.5
    request_queue_limit_per_worker: 10
    raw_isl_token_queue_limit_per_worker: 20
    cached_token_queue_limit_per_worker: 30
`

function faultsOf(text: string): readonly string[] {
  try {
    parsePolicyClasses(text, 'classes.yaml')
  } catch (thrown) {
    if (thrown instanceof BadPolicyClassesError) return thrown.faults
    throw thrown
  }
  return []
}

/** The good file with a line in the place of another, or without it. */
function faultsWith(line: string, instead: string): readonly string[] {
  if (!GOOD.includes(line)) throw new Error(`no line ${line}`)
  return faultsOf(GOOD.replace(line, instead))
}

t.test('a class file gives every field of its classes', async t => {
  t.strictSame(parsePolicyClasses(GOOD, 'classes.yaml'), {
    profile: {
      defaultFamily: 'chat',
      buckets: [{ tokensMin: 0, name: 'all' }],
      classes: [
        {
          name: 'chat',
          family: 'chat',
          cacheBucket: 'all',
          order: 'wspt',
          quantum: 100,
          busyTokens: 5000,
          busyFraction: 1.5,
          requestsPerWorker: 10,
          promptTokensPerWorker: 20,
          cachedTokensPerWorker: 30,
        },
      ],
    },
    models: new Map(),
  })
})

t.test('a class without a queue policy has that of the router', async t => {
  const { profile } = parsePolicyClasses(GOOD.replace('    queue_policy: wspt\n', ''), 'f', 'response-ratio')
  t.equal(profile?.classes[0]?.order, 'response-ratio')
})

t.test('a model can have a profile of its own, with or without one for the rest', async t => {
  const own = GOOD.replace('quantum: 100', 'quantum: 7').replace(/^/gm, '    ')
  const file = parsePolicyClasses(`${GOOD}models:\n  some/model:\n${own}`, 'classes.yaml')
  t.equal(file.profile?.classes[0]?.quantum, 100)
  t.equal(file.models.get('some/model')?.classes[0]?.quantum, 7)
  const only = parsePolicyClasses(`models:\n  some/model:\n${own}`, 'classes.yaml')
  t.equal(only.profile, undefined)
  t.equal(only.models.size, 1)
  const faults = faultsOf(`${GOOD}models:\n  some/model:\n${own.replace('quantum: 7', 'quantum: 0')}`)
  t.strictSame(faults, ['line 27: quantum is 0, not a whole number ≥ 1'])
})

t.test('anchors are understood', async t => {
  const text = GOOD.replace('quantum: 100', 'quantum: &few 100').replace('threshold: 5000', 'threshold: *few')
  t.match(parsePolicyClasses(text, 'f').profile?.classes, [{ quantum: 100, busyTokens: 100 }])
})

t.test('every fault has its line, and all are told together', async t => {
  t.strictSame(faultsWith('quantum: 100', 'quantum: 0'), ['line 10: quantum is 0, not a whole number ≥ 1'])
  t.strictSame(faultsWith('quantum: 100', 'quantum: .nan'), [
    'line 10: quantum is NaN, not a whole number ≥ 1',
  ])
  t.strictSame(faultsWith('    quantum: 100\n', ''), ['line 6: an item of policy_classes has no quantum'])
  t.match(faultsWith('quantum: 100', 'quantum: 100\n    quantumm: 3'), [
    /^line 11: quantumm is no field of an item of policy_classes; the fields are name, policy_family, /,
  ])
  t.match(faultsWith('default_policy_family', 'default_family'), [
    /^line 1: default_family is no field of the file; /,
    'line 1: the file has no default_policy_family',
  ])
  t.strictSame(faultsWith('default_policy_family: chat', 'default_policy_family: gold'), [
    'line 1: default_policy_family is gold, which no class has',
  ])
  t.strictSame(faultsWith('queue_policy: wspt', 'queue_policy: lifo'), [
    'line 9: queue_policy is "lifo", not one of fcfs, lcfs, wspt, wspt-total, response-ratio',
  ])
  t.strictSame(faultsWith('frac: 1.5', 'frac: -1').length, 1)
  t.strictSame(faultsWith('min_tokens: 0', 'min_tokens: 5'), ['line 3: min_tokens of the first is not 0'])
  const another = (tokensMin: number) =>
    faultsWith('bucket: all\npolicy', `bucket: all\n  - { min_tokens: ${tokensMin}, bucket: more }\npolicy`)
  t.strictSame(another(0), ['line 5: min_tokens is 0, not above the 0 before it'])
  t.strictSame(another(9), [
    'line 6: policy_classes has 0 classes of family chat for bucket more: it needs one',
  ])
  t.match(faultsWith('    cache_bucket: all\n', ''), [
    'line 6: an item of policy_classes class chat has one of policy_family and cache_bucket: give both or neither',
  ])
  t.match(faultsWith('cache_bucket: all', 'cache_bucket: some'), [/^line 8: cache_bucket is some, /])
  t.strictSame(faultsWith('name: chat', 'name: "a b"').length, 1)
  const two = faultsOf(
    GOOD.replace('quantum: 100', 'quantum: no').replace('threshold: 5000', 'threshold: [1]'),
  )
  t.strictSame(two, [
    'line 10: quantum is "no", not a whole number ≥ 1',
    'line 11: prefill_busy_threshold is not a single value',
  ])
})

t.test('what is no class file at all is refused as well', async t => {
  t.strictSame(faultsOf(''), ['it is empty'])
  t.strictSame(faultsOf('just text'), ['line 1: the file is no list of names and values'])
  t.match(faultsOf('a: [1'), [/^line 1: /])
  t.match(faultsOf('a: 1\na: 2\n'), [/^line 2: /])
  t.match(faultsOf('models:'), [
    /^line 1: models has no value/,
    /no default/,
    /no uncached/,
    /no policy_classes/,
  ])
  t.match(faultsWith('  - name: chat', '  - chat'), [/./])
  t.throws(() => parsePolicyClasses('', 'classes.yaml'), {
    code: 'HOMING_QUEUE_BAD_POLICY_CLASSES',
    message: 'cannot use the policy classes of classes.yaml: it is empty',
  })
})
