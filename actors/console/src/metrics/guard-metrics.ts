/** Metrics of the guard. Where no decision is its business, there are none. */

import type { Metrics } from '@homing/metrics'
import type { GuardStatus } from '@homing/placement'
import { type ArmReport, GUARD_ARMS, GUARD_PHASES, SHADOW_NAMES } from '@homing/selection'
import type { ConsoleArgs } from '../console-args.ts'

export function collectGuard(metrics: Metrics, args: ConsoleArgs): void {
  const table = metrics.table<GuardStatus, never>(
    [],
    [
      [
        'homing_guard_affinity_share_ratio',
        'Share of the experiments that go by the policy.',
        ({ controlShare }) => 1 - controlShare,
      ],
      [
        'homing_guard_control_share_ratio',
        'Share of the experiments that go by least-loaded.',
        ({ controlShare }) => controlShare,
      ],
      [
        'homing_guard_calibration_ratio',
        'Time to the first token seen divided by predicted, geometric mean of the last answers.',
        ({ calibration }) => (calibration > 0 ? calibration : undefined),
      ],
      [
        'homing_guard_cached_ratio',
        'Of the tokens that were predicted to be cached, those that were, over the last answers.',
        ({ cachedShare }) => cachedShare,
      ],
      ['homing_guard_tests_total', 'How often both arms got half of the experiments.', ({ tests }) => tests],
      ['homing_guard_shrinks_total', 'How often affinity was found to be worse.', ({ shrinks }) => shrinks],
      [
        'homing_guard_unseen_requests_total',
        'Answers that do not stream, and so have no time to the first token.',
        ({ unseen }) => unseen,
      ],
    ],
  )
  const arms = metrics.table<ArmReport, 'arm'>(
    ['arm'],
    [
      ['homing_guard_decisions_total', 'Experiments, by who decided.', ({ decisions }) => decisions],
      ['homing_guard_first_tokens_total', 'First tokens of experiments.', ({ outcomes }) => outcomes],
      [
        'homing_guard_corrected_ttft_ratio',
        'Time to the first token divided by that of all requests with about as long a prompt.',
        ({ correctedTtft }) => (correctedTtft > 0 ? correctedTtft : undefined),
      ],
    ],
  )
  const phases = metrics.gauge({
    name: 'homing_guard_phase_state',
    help: '1 for what the guard does now: trusting, testing, shrunk.',
    labels: ['phase'],
  })
  const regrets = metrics.gauge({
    name: 'homing_guard_regret_seconds',
    help: 'Mean cost of the last decisions beyond what another rule would have cost, as predicted; below 0, it would have cost more.',
    labels: ['rule'],
  })
  metrics.collect(async () => {
    const status = await args.router.ask({ type: 'guard' }, { timeout: args.askMsMax })
    if (status === undefined) return
    table.update([{ row: status, labels: {} }])
    arms.update(GUARD_ARMS.map(arm => ({ row: status[arm], labels: { arm } })))
    phases.replace(GUARD_PHASES.map(phase => ({ value: phase === status.phase ? 1 : 0, labels: { phase } })))
    regrets.replace(SHADOW_NAMES.map(rule => ({ value: status.meanRegretMs[rule] / 1000, labels: { rule } })))
  })
}
