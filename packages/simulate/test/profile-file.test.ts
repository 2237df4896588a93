import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { BadProfileError, readProfile } from '../src/index.ts'

const WHOLE = {
  overheadMs: 1,
  weightsMs: 5.5,
  msPerToken: 0.023,
  msPerTokenContext: 9.6e-7,
  msPerDecodeContext: 4.2e-5,
  kvCapacityTokens: 440_000,
  stepTokensMax: 8192,
  sequencesMax: 1024,
}

t.test('a profile is read from JSON and from YAML, and named after its file', async t => {
  const folder = t.testdir({
    'my-gpu.json': JSON.stringify(WHOLE),
    'other.yaml': Object.entries({ ...WHOLE, name: 'l40s' })
      .map(([field, value]) => `${field}: ${value}\n`)
      .join(''),
  })
  t.strictSame(readProfile(join(folder, 'my-gpu.json')), { ...WHOLE, name: 'my-gpu' })
  t.strictSame(readProfile(join(folder, 'other.yaml')), { ...WHOLE, name: 'l40s' })
})

t.test('a missing field is told by its name, whichever it is', async t => {
  const folder = t.testdir({})
  const path = join(folder, 'gpu.json')
  for (const field of Object.keys(WHOLE)) {
    writeFileSync(path, JSON.stringify({ ...WHOLE, [field]: undefined }))
    t.throws(() => readProfile(path), {
      code: 'HOMING_SIMULATE_BAD_PROFILE',
      message: new RegExp(`gpu\\.json: ${field} is missing$`),
    })
  }
})

t.test('all faults of a profile are told together', async t => {
  const folder = t.testdir({
    'bad.yaml':
      'overheadMs: -1\nweightsMs: fast\nmsPerToken: 0.02\nmsPerTokenContext: 0\nmsPerDecodeContext: .nan\nkvCapacityTokens: 1.5\nsequencesMax: 0\nspeed: 3\n',
    'list.json': '[1]',
    'broken.json': '{"overheadMs": ',
    'still.json': JSON.stringify({ ...WHOLE, overheadMs: 0, weightsMs: 0 }),
  })
  const messageOf = (name: string): string => {
    try {
      readProfile(join(folder, name))
    } catch (thrown) {
      t.ok(thrown instanceof BadProfileError)
      return (thrown as Error).message
    }
    return 'read'
  }
  const bad = messageOf('bad.yaml')
  for (const part of [
    'overheadMs is -1, not a number within 0 … 1000000',
    'weightsMs is "fast", not a number',
    'msPerDecodeContext is null, not a number',
    'kvCapacityTokens is 1.5, not a whole number',
    'stepTokensMax is missing',
    'sequencesMax is 0, not a number within 1',
    'speed is no field of a profile; the fields are overheadMs, weightsMs',
  ]) {
    t.match(bad, part)
  }
  t.match(messageOf('list.json'), /it is not a list of names and values$/)
  t.match(messageOf('broken.json'), /cannot use the profile .*broken\.json: \S/)
  t.match(messageOf('absent.json'), /ENOENT/)
  t.match(messageOf('still.json'), /both 0: a step must take some time/)
})
