/** The line of the banner that says how requests are placed, and what made it so. */

import { parseSettings, routerCommand } from '@homing/config'
import t from 'tap'
import { placementLine } from '../src/placement-line.ts'

function lineOf(argv: readonly string[], environment: Readonly<Record<string, string>> = {}): string {
  const { settings, sources } = parseSettings(routerCommand, argv, environment)
  return placementLine(settings, sources)
}

t.test('what makes the policy linear is named as it was given', async t => {
  t.match(
    lineOf(['--kv-overlap-score-weight', '4']),
    /^placement: policy linear, since --kv-overlap-score-weight is given: /,
  )
  t.match(lineOf(['--router-temperature', '0.5']), /policy linear, since --router-temperature is given: /)
  t.match(
    lineOf([], { HOMING_KV_OVERLAP_SCORE_WEIGHT: '1' }),
    /policy linear, since HOMING_KV_OVERLAP_SCORE_WEIGHT is given: /,
  )
})

t.test('nothing is given as the reason of a policy that was asked for, or of the default', async t => {
  t.match(lineOf([]), /^placement: policy auto: /)
  t.match(
    lineOf(['--router-policy', 'linear', '--kv-overlap-score-weight', '4']),
    /^placement: policy linear: /,
  )
  t.match(lineOf(['--router-policy', 'product']), /^placement: policy product: /)
  t.match(lineOf(['--router-mode', 'random']), /^placement: random, which does not look at caches$/)
  t.match(lineOf(['--selection-module', 'mine.ts']), /^placement: by the selection of .*mine\.ts$/)
})
