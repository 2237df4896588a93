/** Metrics of the guard. Where no decision is its business, there are none. */

import type { Metrics } from '@homing/metrics'
import type { GuardStatus } from '@homing/placement'
import {
  type ArmReport,
  type Difference,
  GUARD_ARMS,
  GUARD_MEASURES,
  GUARD_PHASES,
  SHADOW_NAMES,
} from '@homing/selection'
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
      [
        'homing_guard_worse_ratio',
        'How much worse the policy is than control by the rule of the guard, in mean times, beyond chance; below 0 it is better.',
        ({ worseBy }) => worseBy,
      ],
      [
        'homing_guard_quiet_state',
        '1 if nothing was found for an hour, so that experiments have a budget; otherwise 0.',
        ({ isQuiet }) => (isQuiet ? 1 : 0),
      ],
      [
        'homing_guard_prompt_tokens_total',
        'Prompt tokens of the decisions by the policy and of its experiments.',
        ({ promptTokens }) => promptTokens,
      ],
      [
        'homing_guard_extra_tokens_total',
        'Of them, those that were computed only because control decided.',
        ({ extraTokens }) => extraTokens,
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
      [
        'homing_guard_finished_requests_total',
        'Experiments whose whole answer came.',
        ({ finished }) => finished,
      ],
      [
        'homing_guard_failed_requests_total',
        'Experiments that their workers failed.',
        ({ failed }) => failed,
      ],
      [
        'homing_guard_errors_ratio',
        'Share of the last experiments that their workers failed.',
        ({ errorShare, finished, failed }) => (finished + failed > 0 ? errorShare : undefined),
      ],
      [
        'homing_guard_corrected_duration_ratio',
        'Time of whole answers divided by that of all requests of about the same size.',
        ({ correctedDuration }) => (correctedDuration > 0 ? correctedDuration : undefined),
      ],
    ],
  )
  const workers = metrics.table<GuardStatus['workers'][number], 'worker'>(
    ['worker'],
    [
      [
        'homing_guard_worker_errors_ratio',
        'Share of the last requests of the policy that the worker failed.',
        ({ policy }) => (policy.requests > 0 ? policy.errorShare : undefined),
      ],
      [
        'homing_guard_worker_ttft_ratio',
        'Time to the first token of the last requests of the policy there, divided by that of all requests of about the same size.',
        ({ policy }) => (policy.correctedTtft > 0 ? policy.correctedTtft : undefined),
      ],
      [
        'homing_guard_worker_duration_ratio',
        'Time of the last whole answers of the policy there, divided by that of all requests of about the same size.',
        ({ policy }) => (policy.correctedDuration > 0 ? policy.correctedDuration : undefined),
      ],
    ],
  )
  const worse = metrics.gauge({
    name: 'homing_guard_worker_worse_state',
    help: '1 while requests of the policy end worse at the worker than those that control sends there, or than at the workers of the fleet together; otherwise 0.',
    labels: ['worker', 'than'],
  })
  const differences = metrics.table<Difference, 'measure'>(
    ['measure'],
    [
      [
        'homing_guard_difference_ratio',
        'How much worse the policy is than control, as a share of control; of errors, the difference of the shares.',
        ({ excess }) => excess,
      ],
      ['homing_guard_z_ratio', 'The same in standard errors.', ({ z }) => z],
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
    differences.update(
      GUARD_MEASURES.map(measure => ({ row: status.differences[measure], labels: { measure } })),
    )
    workers.replace(status.workers.map(row => ({ row, labels: { worker: row.worker } })))
    worse.replace(
      status.workers.flatMap(({ worker, isWorseThanControl, isWorseThanFleet }) => [
        { value: isWorseThanControl ? 1 : 0, labels: { worker, than: 'control' } },
        { value: isWorseThanFleet ? 1 : 0, labels: { worker, than: 'fleet' } },
      ]),
    )
    phases.replace(GUARD_PHASES.map(phase => ({ value: phase === status.phase ? 1 : 0, labels: { phase } })))
    regrets.replace(SHADOW_NAMES.map(rule => ({ value: status.meanRegretMs[rule] / 1000, labels: { rule } })))
  })
}
