/** The content of /metrics: names, and labels whose values clients cannot make up. */

import { readFileSync } from 'node:fs'
import process from 'node:process'
import { faultOfMetricName } from '@homing/metrics'
import type { GuardStatus } from '@homing/placement'
import type { KeyAudit } from '@homing/selection'
import t from 'tap'
import { start, type World } from './gateway-world.ts'
import { data, die, end, head } from './worker-exchange.ts'

/** Samples of the gateway's and router's own counters that are not 0, as lines of text. */
async function samples({ ask }: World, prefix: string): Promise<string[]> {
  const { body } = await ask('GET', '/metrics')
  return body
    .split('\n')
    .filter(line => line.startsWith(prefix) && !line.includes('_bucket') && !/ 0$/.test(line))
}

t.test('every metric has a name that says area, what and unit, or is one of every Node process', async t => {
  const { ask } = await start(t)
  const { body, headers } = await ask('GET', '/metrics')
  t.match(headers['content-type'], /^text\/plain; version=0\.0\.4/)
  const types = [...body.matchAll(/^# TYPE (\w+) (counter|gauge|histogram)$/gm)]
  const own = types.filter(([, name]) => !/^(process|nodejs)_/.test(name!))
  t.ok(own.length > 15)
  for (const [, name, kind] of own) t.equal(faultOfMetricName(name!, kind as 'counter'), undefined)
  t.strictSame(
    types.map(([, name]) => name).filter((name, i, all) => all.indexOf(name) !== i),
    [],
  )
})

t.test('docs/metrics.md names every metric and no other', async t => {
  const { ask } = await start(t, {}, {}, { metricsPort: 9091 })
  const { body } = await ask('GET', '/metrics')
  const answered = [...body.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name!)
  const page = readFileSync(new URL('../../../docs/metrics.md', import.meta.url), 'utf8')
  const [, ofBoth, ofRouter] = page.split(/^## .*$/m)
  const documented = [...`${ofBoth}${ofRouter}`.matchAll(/`((?:homing|process|nodejs)_\w+)`/g)].map(
    ([, name]) => name!,
  )
  // docs/actors.md has those of the actor runtime.
  t.strictSame(
    answered.filter(name => !name.startsWith('homing_actor_') && !documented.includes(name)),
    [],
  )
  // Other systems do not tell all of the process.
  const isHere = (name: string) => process.platform === 'linux' || !name.startsWith('process_')
  t.strictSame(
    documented.filter(name => isHere(name) && !answered.includes(name)),
    [],
  )
})

t.test('each family of Dynamo has its line, with metrics that exist or a reason', async t => {
  const { ask } = await start(t)
  const { body } = await ask('GET', '/metrics')
  const answered = new Set([...body.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name!))
  const page = readFileSync(new URL('../../../docs/metrics.md', import.meta.url), 'utf8')
  const [, section] = page.split(/^## Dynamo's names$/m)
  const rows = section!.split('\n').filter(line => line.startsWith('| `dynamo_'))
  t.ok(rows.length > 30, `${rows.length} rows`)
  const theirs = new Set<string>()
  for (const row of rows) {
    const [, left, right] = row.split(/ \| |^\| /)
    for (const [, name] of left!.matchAll(/`(dynamo_\w+)/g)) {
      t.notOk(theirs.has(name!), `${name} has one line`)
      theirs.add(name!)
    }
    const ours = [...right!.matchAll(/`((?:homing|process)_\w+)`/g)].map(([, name]) => name!)
    t.ok(ours.length > 0 || /none: |stages? `/.test(right!), row)
    for (const name of ours) t.ok(answered.has(name) || name.startsWith('homing_indexer_'), name)
  }
})

t.test('every request is counted once, under the route it took', async t => {
  const world = await start(t)
  const { ask, answer } = world
  const post = (path: string, body = '{}') => ask('POST', path, { body })
  await post('/v1/chat/completions')
  await answer(head(), data('x'), end)
  await post('/v1/chat/completions')
  await answer(die)
  await post('/v1/completions', 'x'.repeat(2000))
  await post('/v1/embeddings')
  await answer(head(400), end)
  await post('/route', '{')
  await ask('GET', '/decisions/none')
  await ask('DELETE', '/v1/chat/completions')
  t.strictSame(await samples(world, 'homing_gateway_requests_total'), [
    'homing_gateway_requests_total{route="chat",status="200"} 1',
    'homing_gateway_requests_total{route="chat",status="502"} 1',
    'homing_gateway_requests_total{route="completions",status="413"} 1',
    'homing_gateway_requests_total{route="other",status="400"} 1',
    'homing_gateway_requests_total{route="route",status="400"} 1',
    'homing_gateway_requests_total{route="decisions",status="404"} 1',
    'homing_gateway_requests_total{route="chat",status="405"} 1',
  ])
  t.strictSame(await samples(world, 'homing_gateway_failures_total'), [
    'homing_gateway_failures_total{route="chat",phase="before_first_byte"} 1',
  ])
  t.strictSame(await samples(world, 'homing_gateway_first_byte_seconds_count'), [
    'homing_gateway_first_byte_seconds_count{route="chat"} 1',
  ])
  t.strictSame(await samples(world, 'homing_gateway_duration_seconds_count'), [
    'homing_gateway_duration_seconds_count{route="chat"} 1',
    'homing_gateway_duration_seconds_count{route="other"} 1',
  ])
})

t.test('clients cannot make up series', async t => {
  const world = await start(t)
  const { ask } = world
  for (const path of ['/a', '/b', '/v1/models/x', '/v1/models/y', '/decisions/c', '/decisions/d'])
    await ask('GET', path)
  t.strictSame(await samples(world, 'homing_gateway_requests_total'), [
    'homing_gateway_requests_total{route="none",status="404"} 2',
    'homing_gateway_requests_total{route="models",status="404"} 2',
    'homing_gateway_requests_total{route="decisions",status="404"} 2',
  ])
})

t.test('decisions are counted with what they predict; open requests and clients gone with them', async t => {
  const world = await start(t)
  const { system, ask } = world
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  t.strictSame(await samples(world, 'homing_router_'), [
    'homing_router_decisions_total{worker="10.0.0.1:8001/0",trust="exact"} 1',
    'homing_router_prompt_tokens_total 100',
    'homing_router_overlap_tokens_total 48',
  ])
  t.strictSame(await samples(world, 'homing_gateway_open_requests'), ['homing_gateway_open_requests 1'])
  call.call.abort()
  await system.settle()
  t.strictSame(await samples(world, 'homing_gateway_open_requests'), [])
  t.strictSame(await samples(world, 'homing_gateway_clients_gone_total'), [
    'homing_gateway_clients_gone_total{route="completions"} 1',
  ])
  await ask('POST', '/v1/embeddings', { body: '{}' })
  t.strictSame(await samples(world, 'homing_router_unknown'), ['homing_router_unknown_prompts_total 1'])
})

t.test('an owner that does not answer leaves its last figures, and the scrape whole', async t => {
  const world = await start(t)
  const { system, send, script } = world
  t.match(await samples(world, 'homing_index_used_bytes'), ['homing_index_used_bytes{shard="0"} 1000'])
  script.shard = undefined
  script.report = undefined
  script.loads = undefined
  const call = send('GET', '/metrics')
  await system.advance('1s')
  t.equal(call.status, 200)
  t.match(call.body, /^homing_index_used_bytes\{shard="0"\} 1000$/m)
  t.match(call.body, /^homing_directory_trust_state\{worker="10\.0\.0\.1:8001\/0",trust="exact"\} 1$/m)
})

t.test('the actor runtime is shown by thread', async t => {
  const world = await start(t)
  const lines = await samples(world, 'homing_actor_')
  const wanted = [
    /^homing_actor_handled_messages_total\{thread="main"\} \d+$/,
    /^homing_actor_thread_lives_total\{thread="main"\} 1$/,
    /^homing_actor_live_actors\{thread="main"\} \d+$/,
    /^homing_actor_thread_state\{thread="main",state="running"\} 1$/,
  ]
  for (const line of wanted)
    t.ok(
      lines.some(given => line.test(given)),
      String(line),
    )
  const { body } = await world.ask('GET', '/metrics')
  t.match(body, /homing_actor_handler_seconds_bucket\{thread="main",le="0.000001"\} \d+/)
  t.match(body, /homing_actor_dead_letters_total\{thread="main",reason="overflow"\} 0/)
})

t.test('the audit is shown by worker key', async t => {
  const audit: KeyAudit = {
    worker: 'a/0',
    workerSlot: 0,
    state: 'audited',
    requests: 3,
    predictedTokens: 96,
    deliveredTokens: 48,
    overPredictions: 1,
    underPredictions: 0,
    unreported: 0,
    promptDifferences: 0,
    errorCounts: [0, 0, 0, 0, 2, 0, 1, 0, 0, 0],
    errorBlocksSum: 3,
    precision: 0.5,
    sampleRequests: 3,
    guessPrecision: 1,
    guessSampleRequests: 0,
  }
  const world = await start(t, {}, { audits: [audit] })
  t.strictSame(await samples(world, 'homing_audit_'), [
    'homing_audit_requests_total{worker="a/0"} 3',
    'homing_audit_predicted_tokens_total{worker="a/0"} 96',
    'homing_audit_delivered_tokens_total{worker="a/0"} 48',
    'homing_audit_over_predictions_total{worker="a/0"} 1',
    'homing_audit_precision_ratio{worker="a/0"} 0.5',
    'homing_audit_error_blocks_sum{worker="a/0"} 3',
    'homing_audit_error_blocks_count{worker="a/0"} 3',
  ])
  const unaudited = await start(t, {}, { audits: [{ ...audit, precision: 1, sampleRequests: 0 }] })
  t.strictSame(await samples(unaudited, 'homing_audit_precision_ratio'), [], 'nothing was measured')
})

t.test('the guard is shown where there is one', async t => {
  const none = { fewer: 0, z: 0, excess: 0 }
  const means = { requests: 8, errorShare: 0.25, correctedTtft: 2, correctedDuration: 3 }
  const arm = {
    decisions: 10,
    outcomes: 8,
    finished: 6,
    failed: 2,
    correctedTtft: 1.25,
    correctedDuration: 1.5,
    errorShare: 0.25,
  }
  const guard: GuardStatus = {
    phase: 'shrunk',
    controlShare: 0.75,
    affinity: arm,
    control: {
      decisions: 30,
      outcomes: 0,
      finished: 0,
      failed: 0,
      correctedTtft: 0,
      correctedDuration: 0,
      errorShare: 0,
    },
    z: 3,
    differences: { errors: { fewer: 20, z: 4, excess: 0.25 }, ttft: none, duration: none },
    worseBy: 2.5,
    promptTokens: 1000,
    extraTokens: 5,
    isQuiet: true,
    workers: [
      {
        worker: 'a/0',
        policy: means,
        control: { ...means, requests: 0 },
        isWorseThanControl: false,
        isWorseThanFleet: true,
      },
    ],
    calibration: 2,
    cachedShare: 0.5,
    tests: 2,
    shrinks: 1,
    unseen: 4,
    share: 0.01,
    decisions: 100,
    meanRegretMs: { 'round-robin': -500, 'least-loaded': 0, product: 250 },
  }
  const world = await start(t, {}, { guard })
  t.strictSame((await samples(world, 'homing_guard_')).sort(), [
    'homing_guard_affinity_share_ratio 0.25',
    'homing_guard_cached_ratio 0.5',
    'homing_guard_calibration_ratio 2',
    'homing_guard_control_share_ratio 0.75',
    'homing_guard_corrected_duration_ratio{arm="affinity"} 1.5',
    'homing_guard_corrected_ttft_ratio{arm="affinity"} 1.25',
    'homing_guard_decisions_total{arm="affinity"} 10',
    'homing_guard_decisions_total{arm="control"} 30',
    'homing_guard_difference_ratio{measure="errors"} 0.25',
    'homing_guard_errors_ratio{arm="affinity"} 0.25',
    'homing_guard_extra_tokens_total 5',
    'homing_guard_failed_requests_total{arm="affinity"} 2',
    'homing_guard_finished_requests_total{arm="affinity"} 6',
    'homing_guard_first_tokens_total{arm="affinity"} 8',
    'homing_guard_phase_state{phase="shrunk"} 1',
    'homing_guard_prompt_tokens_total 1000',
    'homing_guard_quiet_state 1',
    'homing_guard_regret_seconds{rule="product"} 0.25',
    'homing_guard_regret_seconds{rule="round-robin"} -0.5',
    'homing_guard_shrinks_total 1',
    'homing_guard_tests_total 2',
    'homing_guard_unseen_requests_total 4',
    'homing_guard_worker_duration_ratio{worker="a/0"} 3',
    'homing_guard_worker_errors_ratio{worker="a/0"} 0.25',
    'homing_guard_worker_ttft_ratio{worker="a/0"} 2',
    'homing_guard_worker_worse_state{worker="a/0",than="fleet"} 1',
    'homing_guard_worse_ratio 2.5',
    'homing_guard_z_ratio{measure="errors"} 4',
  ])
  const { body } = await (await start(t)).ask('GET', '/metrics')
  t.notMatch(body, /^homing_guard_/m, 'under another policy there is none, not even a 0')
})
