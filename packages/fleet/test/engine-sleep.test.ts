/** Whether an engine sleeps, and what is left of its cache. */

import t from 'tap'
import { readEngineSleep, sleepReason } from '../src/engine-sleep.ts'
import { readMetrics } from '../src/probe-answers.ts'

type Level = 'awake' | 'weights_offloaded' | 'discard_all' | 'none'

function metricsOf(levels: readonly Level[]): string {
  const states = ['awake', 'weights_offloaded', 'discard_all'] as const
  return levels
    .flatMap((level, rank) =>
      states.map(
        state =>
          `vllm:engine_sleep_state{engine="${rank}",model_name="m",sleep_state="${state}"} ${state === level ? '1.0' : '0.0'}`,
      ),
    )
    .join('\n')
}

t.test('its metrics tell how deep it sleeps, by its deepest rank', async t => {
  const of = (...levels: readonly Level[]) => readMetrics(metricsOf(levels)).sleepState
  t.equal(of('awake', 'awake'), 'awake')
  t.equal(of('weights_offloaded'), 'discarded')
  t.equal(of('awake', 'discard_all', 'awake'), 'discarded')
  t.equal(of('none'), 'kept', 'level 0 discards nothing')
  t.equal(readMetrics('vllm:num_requests_running{engine="0"} 0').sleepState, undefined)
  t.equal(
    readMetrics(`vllm:engine_sleep_state{${'sleep_state="a",'.repeat(200_000)}} 1`).sleepState,
    undefined,
  )
})

t.test('a cache of which nothing is told is taken to be gone', async t => {
  t.strictSame(readEngineSleep({ is_sleeping: true }, undefined), { isAsleep: true, hasCache: false })
  t.strictSame(readEngineSleep({ is_sleeping: true }, 'kept'), { isAsleep: true, hasCache: true })
  t.strictSame(readEngineSleep({ is_sleeping: false }, 'discarded'), { isAsleep: false, hasCache: true })
  for (const answer of [undefined, null, [], {}, { is_sleeping: 'true' }, 'yes'])
    t.equal(readEngineSleep(answer, 'discarded'), undefined)
  t.equal(sleepReason({ isAsleep: false, hasCache: true }), undefined)
  t.match(sleepReason({ isAsleep: true, hasCache: true }), /has kept its cache/)
})
