/** Which keys a worker of the API may name, and what is told of those that cannot be had. */

import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { NO_KEYS, parseWorkerSpec, readKey, withinLimits } from '../src/index.ts'

const SECRET = 'sk-of-another-service-123'

t.test('a worker names a key only below what the operator named', async t => {
  const limits = { directory: '/etc/keys', envPrefix: 'ENGINE_KEY_' }
  const limited = (query: string, within: Parameters<typeof withinLimits>[1]) =>
    withinLimits(parseWorkerSpec(`http://h:1?${query}`, 0), within).key
  t.match(limited('key_file=/etc/keys/a', limits), { file: '/etc/keys/a', within: '/etc/keys' })
  t.match(limited('key_env=ENGINE_KEY_A', limits), { env: 'ENGINE_KEY_A' })
  t.equal(limited('events=5', NO_KEYS), undefined)
  t.match(limited('key_file=/k', { directory: '/' }), { file: '/k' })
  for (const [query, within, option] of [
    ['key_file=/etc/keys/a', NO_KEYS, '--worker-key-dir'],
    ['key_file=/etc/keys', limits, '--worker-key-dir'],
    ['key_file=/etc/keys2/a', limits, '--worker-key-dir'],
    ['key_file=/etc/keys/../shadow', limits, '--worker-key-dir'],
    ['key_file=%2Fetc%2Fkeys%2F..%2Fshadow', limits, '--worker-key-dir'],
    ['key_file=a', limits, '--worker-key-dir'],
    [`key_file=${SECRET}`, limits, '--worker-key-dir'],
    ['key_env=AWS_SECRET', NO_KEYS, '--worker-key-env-prefix'],
    ['key_env=AWS_SECRET', limits, '--worker-key-env-prefix'],
    ['key_env=engine_key_a', limits, '--worker-key-env-prefix'],
    ['key_env=A', { envPrefix: '' }, '--worker-key-env-prefix'],
  ] as const) {
    try {
      limited(query, within)
      t.fail(`${query} is refused`)
    } catch (thrown) {
      const { message } = thrown as Error
      t.ok(message.includes(option), message)
      t.notOk(/shadow|AWS_SECRET|etc|sk-of/.test(message), message)
    }
  }
})

t.test('a link does not lead out of the directory, and no reason tells what a machine has', async t => {
  const folder = t.testdir({ keys: { right: SECRET, empty: '', lines: 'a\nb' }, outside: SECRET })
  const within = join(folder, 'keys')
  symlinkSync(join(folder, 'outside'), join(within, 'out'))
  symlinkSync(folder, join(within, 'up'))
  symlinkSync(join(within, 'right'), join(within, 'alias'))
  mkdirSync(join(within, 'sub'))
  writeFileSync(join(within, 'large'), 'x'.repeat(20_000))
  for (const name of ['right', 'alias'])
    t.match(readKey({ file: join(within, name), within }), { key: SECRET })
  const reasons = new Set<string>()
  for (const name of ['out', 'up/outside', 'none', 'sub', 'empty', 'lines', 'large', `${SECRET}`, 'a\0b']) {
    const found = readKey({ file: join(within, name), within })
    t.ok('fault' in found, name)
    if ('fault' in found) {
      reasons.add(found.reason)
      t.notOk(`${found.fault}${found.reason}`.includes(SECRET), found.fault)
    }
  }
  const unset = readKey({ env: 'HOMING_TEST_NOT_SET_1' })
  if ('reason' in unset) reasons.add(unset.reason)
  t.equal(reasons.size, 1, [...reasons].join(' | '))
})
