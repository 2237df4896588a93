import { readFileSync } from 'node:fs'
import t from 'tap'
import { CONFIGURATION_PATH, renderConfiguration } from './configuration.ts'

t.test('docs/configuration.md says what the tables say (write it with `pnpm run docs`)', async t => {
  t.equal(readFileSync(CONFIGURATION_PATH, 'utf8'), renderConfiguration())
})
