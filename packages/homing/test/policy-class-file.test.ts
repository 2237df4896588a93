/** The file of `--router-policy-config`. */

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { loadPolicyClasses } from '../src/policy-class-file.ts'

const FILE = `
default_policy_family: chat
uncached_isl_buckets: [{ min_tokens: 0, bucket: all }]
policy_classes:
  - { name: chat, policy_family: chat, cache_bucket: all, quantum: 1 }
  - { name: batch, queue_policy: lcfs, quantum: 1 }
`

t.test('classes without an order have that of all others', async t => {
  const path = join(t.testdir({}), 'classes.yaml')
  await writeFile(path, FILE)
  const { profile } = await loadPolicyClasses(path, 'wspt')
  t.strictSame(
    profile?.classes.map(({ order }) => order),
    ['wspt', 'lcfs'],
  )
})
