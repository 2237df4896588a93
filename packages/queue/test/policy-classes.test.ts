import t from 'tap'
import { policyClassOf, singleClassProfile } from '../src/index.ts'
import { parsePolicyClasses } from '../src/policy-class-file.ts'

const { profile } = parsePolicyClasses(
  `
default_policy_family: chat
uncached_isl_buckets: [{ min_tokens: 0, bucket: short }, { min_tokens: 8192, bucket: long }]
policy_classes:
  - { name: chat_short, policy_family: chat, cache_bucket: short, quantum: 4 }
  - { name: chat_long, policy_family: chat, cache_bucket: long, quantum: 2 }
  - { name: batch_short, policy_family: batch, cache_bucket: short, quantum: 1 }
  - { name: batch_long, policy_family: batch, cache_bucket: long, quantum: 1 }
  - { name: evaluations, quantum: 1 }
`,
  'classes.yaml',
)

t.test('the family is what the client names, the bucket goes by uncached tokens', async t => {
  t.equal(policyClassOf(profile!, 'batch', 0), 'batch_short')
  t.equal(policyClassOf(profile!, 'batch', 8191), 'batch_short')
  t.equal(policyClassOf(profile!, 'batch', 8192), 'batch_long')
})

t.test('an unknown family is the default, and so is the name of a class with a family', async t => {
  for (const family of [undefined, '', 'unknown', 'batch_short', 'none']) {
    t.equal(policyClassOf(profile!, family, 9000), 'chat_long', family ?? 'none given')
  }
})

t.test('a class without family and bucket is chosen by its name', async t => {
  t.equal(policyClassOf(profile!, 'evaluations', 9000), 'evaluations')
})

t.test('without a class file everything is in one class', async t => {
  const single = singleClassProfile('fcfs', 2)
  t.equal(policyClassOf(single, 'chat', 9000), 'default')
  t.match(single.classes, [{ name: 'default', order: 'fcfs', quantum: 1, busyFraction: 2 }])
})
