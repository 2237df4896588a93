import t from 'tap'
import { DEFAULT_ENGINE_SETTINGS, ENGINE_OPTIONS, engineSettings } from '../src/index.ts'

t.test('the table has every setting once, with its default, a variable and help', async t => {
  const keys = ENGINE_OPTIONS.map(option => option.key)
  t.strictSame([...keys].sort(), Object.keys(DEFAULT_ENGINE_SETTINGS).sort())
  for (const option of ENGINE_OPTIONS) {
    const fallback = option.kind === 'list' ? [] : option.default
    t.strictSame(fallback, DEFAULT_ENGINE_SETTINGS[option.key], option.name)
    t.match(option.env, /^HOMING_ENGINE_[A-Z_]+$/)
    t.match(option.help, /\.$/)
  }
  t.equal(new Set(ENGINE_OPTIONS.map(option => option.name)).size, keys.length)
})

t.test('what is 0 is computed from the profile', async t => {
  t.match(engineSettings(), {
    blocks: 27_501,
    contextTokensMax: 131_072,
    stepTokensMax: 8192,
    sequencesMax: 1024,
  })
  t.match(engineSettings({ profile: 'mock-simple', blocks: 66, blockSizeTokens: 32 }), {
    contextTokensMax: 2080,
    stepTokensMax: 2048,
    sequencesMax: 256,
  })
})

t.test('bad settings are one error with all faults', async t => {
  const bad = { speed: -1, blockSizeTokens: 0, blocks: 1, eventsPort: 5000, replayPort: 5000 }
  t.throws(() => engineSettings(bad), {
    code: 'HOMING_ENGINE_INVALID_SETTINGS',
    message: /speed.*blockSizeTokens.*blocks is 1.*overlap/s,
  })
})
