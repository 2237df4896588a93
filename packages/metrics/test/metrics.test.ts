import { spawnSync } from 'node:child_process'
import process from 'node:process'
import t from 'tap'
import { buildInfo, faultOfMetricName, Metrics } from '../src/index.ts'

const lines = async (metrics: Metrics, name: string) =>
  (await metrics.render()).split('\n').filter(line => line.startsWith(name))

t.test('series of what is gone can be dropped', async t => {
  const metrics = new Metrics()
  const counter = metrics.counter({ name: 'homing_router_decisions_total', help: 'h', labels: ['worker'] })
  const table = metrics.table<number, 'worker'>(['worker'], [['homing_listener_gaps_total', 'h', row => row]])
  for (const worker of ['a', 'b']) {
    counter.add(1, { worker })
    table.update([{ row: 2, labels: { worker } }])
  }
  await counter.keepOnly(({ worker }) => worker === 'b')
  await table.keepOnly(({ worker }) => worker === 'b')
  t.strictSame(await lines(metrics, 'homing_router_decisions_total'), [
    'homing_router_decisions_total{worker="b"} 1',
  ])
  t.strictSame(await lines(metrics, 'homing_listener_gaps_total'), [
    'homing_listener_gaps_total{worker="b"} 2',
  ])
})

t.test('counters, gauges and histograms are rendered with their labels', async t => {
  const metrics = new Metrics()
  const decisions = metrics.counter({ name: 'homing_router_decisions_total', help: 'h', labels: ['mode'] })
  const open = metrics.gauge({ name: 'homing_gateway_open_requests', help: 'h' })
  const latency = metrics.histogram({ name: 'homing_router_decision_seconds', help: 'h', buckets: [0.1, 1] })
  decisions.add(1, { mode: 'kv' })
  decisions.add(2, { mode: 'kv' })
  decisions.add(1, { mode: 'random' })
  open.set(3)
  open.add(-1)
  latency.observe(0.5)

  t.strictSame(await lines(metrics, 'homing_router_decisions_total'), [
    'homing_router_decisions_total{mode="kv"} 3',
    'homing_router_decisions_total{mode="random"} 1',
  ])
  t.strictSame(await lines(metrics, 'homing_gateway_open_requests'), ['homing_gateway_open_requests 2'])
  t.strictSame(await lines(metrics, 'homing_router_decision_seconds'), [
    'homing_router_decision_seconds_bucket{le="0.1"} 0',
    'homing_router_decision_seconds_bucket{le="1"} 1',
    'homing_router_decision_seconds_bucket{le="+Inf"} 1',
    'homing_router_decision_seconds_sum 0.5',
    'homing_router_decision_seconds_count 1',
  ])
})

t.test(
  'a counter keeps series apart whose labels would read alike in a row, and takes no count below 0',
  async t => {
    const metrics = new Metrics()
    const name = 'homing_gateway_failures_total'
    const failures = metrics.counter({ name, help: 'h', labels: ['route', 'phase'] })
    failures.add(1, { route: '1 a', phase: '' })
    failures.add(2, { route: '', phase: '1 a' })
    failures.add(4, { route: '3 1', phase: ' a' })
    failures.add(8, { route: '3 1', phase: ' a' })
    for (const count of [-1, Number.NaN, Number.POSITIVE_INFINITY])
      t.throws(
        () => failures.add(count, { route: '', phase: '' }),
        new RegExp(`cannot add ${count} to ${name}`),
      )
    t.strictSame(await lines(metrics, name), [
      `${name}{route="1 a",phase=""} 1`,
      `${name}{route="",phase="1 a"} 2`,
      `${name}{route="3 1",phase=" a"} 12`,
    ])
  },
)

t.test('a histogram has a series for each of its labels that was observed', async t => {
  const metrics = new Metrics()
  const stages = metrics.histogram({
    name: 'homing_gateway_stage_seconds',
    help: 'h',
    labels: ['stage'],
    buckets: [0.1, 1],
  })
  t.strictSame(await lines(metrics, 'homing_gateway_stage_seconds'), [], 'none yet')
  stages.observe(0.1, { stage: 'read' })
  stages.observe(0.5, { stage: 'read' })
  stages.observe(2, { stage: 'sent' })
  stages.observe(1, { stage: 'gone' })
  stages.remove({ stage: 'gone' })
  t.throws(() => stages.observe(Number.NaN, { stage: 'read' }), /cannot observe NaN/)
  t.strictSame(await lines(metrics, 'homing_gateway_stage_seconds'), [
    'homing_gateway_stage_seconds_bucket{stage="read",le="0.1"} 1',
    'homing_gateway_stage_seconds_bucket{stage="read",le="1"} 2',
    'homing_gateway_stage_seconds_bucket{stage="read",le="+Inf"} 2',
    'homing_gateway_stage_seconds_sum{stage="read"} 0.6',
    'homing_gateway_stage_seconds_count{stage="read"} 2',
    'homing_gateway_stage_seconds_bucket{stage="sent",le="0.1"} 0',
    'homing_gateway_stage_seconds_bucket{stage="sent",le="1"} 0',
    'homing_gateway_stage_seconds_bucket{stage="sent",le="+Inf"} 1',
    'homing_gateway_stage_seconds_sum{stage="sent"} 2',
    'homing_gateway_stage_seconds_count{stage="sent"} 1',
  ])
})

t.test('a collector sets its figures at each scrape, and series of the gone are gone', async t => {
  const metrics = new Metrics()
  const loads = metrics.gauge({ name: 'homing_tracker_active_blocks', help: 'h', labels: ['worker'] })
  const sent = metrics.counter({ name: 'homing_actor_sent_messages_total', help: 'h' })
  let workers = ['a/0', 'b/0']
  let total = 10
  metrics.collect(async () => {
    loads.replace(workers.map((worker, i) => ({ value: i, labels: { worker } })))
    sent.setTotal(total)
  })

  t.equal((await lines(metrics, 'homing_tracker_active_blocks{')).length, 2)
  workers = ['b/0']
  total = 12
  t.strictSame(await lines(metrics, 'homing_tracker_active_blocks{'), [
    'homing_tracker_active_blocks{worker="b/0"} 0',
  ])
  t.strictSame(await lines(metrics, 'homing_actor_sent'), ['homing_actor_sent_messages_total 12'])
})

t.test('a collector that fails is counted and costs nobody else their figures', async t => {
  const metrics = new Metrics()
  const open = metrics.gauge({ name: 'homing_gateway_open_requests', help: 'h' })
  metrics.collect(() => {
    throw new Error('at once')
  })
  metrics.collect(() => Promise.reject(new Error('later')))
  metrics.collect(() => open.set(5))
  const text = await metrics.render()
  t.match(text, 'homing_gateway_open_requests 5')
  t.match(text, 'homing_metrics_collector_failures_total 2')
})

t.test('two registries know nothing of each other', async t => {
  const declaration = { name: 'homing_gateway_open_requests', help: 'h' }
  const one = new Metrics()
  const other = new Metrics()
  one.gauge(declaration).set(1)
  other.gauge(declaration).set(2)
  t.match(await one.render(), 'homing_gateway_open_requests 1')
  t.match(await other.render(), 'homing_gateway_open_requests 2')
})

t.test('a name follows the pattern, with a unit at its end', async t => {
  t.equal(faultOfMetricName('homing_router_decisions_total', 'counter'), undefined)
  t.equal(faultOfMetricName('homing_index_memory_bytes', 'gauge'), undefined)
  t.equal(faultOfMetricName('homing_build_info', 'gauge'), undefined, 'information of the whole has no area')
  t.match(faultOfMetricName('router_decisions_total', 'counter'), /is not homing_/)
  t.match(faultOfMetricName('homing_decisions_total', 'counter'), /is not homing_/)
  t.match(faultOfMetricName('homing_router_Decisions_total', 'counter'), /is not homing_/)
  t.match(faultOfMetricName('homing_router_decision_time', 'histogram'), /none of the units/)
  t.match(faultOfMetricName('homing_router_decisions_requests', 'counter'), /must end with _total/)
  t.match(faultOfMetricName('homing_router_decisions_total', 'gauge'), /must not end with _total/)
})

t.test('a bad declaration is a bug and stops at once', async t => {
  const metrics = new Metrics()
  const declaration = { name: 'homing_gateway_open_requests', help: 'h' }
  metrics.gauge(declaration)
  t.throws(() => metrics.gauge(declaration), /declared twice/)
  t.throws(() => metrics.counter({ name: 'homing_x', help: 'h' }), /is not homing_/)
  t.throws(
    () => metrics.histogram({ name: 'homing_router_decision_seconds', help: 'h', buckets: [1, 1] }),
    /must ascend/,
  )
})

t.test('figures of the process have the names that every Prometheus client gives them', async t => {
  const metrics = new Metrics()
  metrics.observeProcess()
  const text = await metrics.render()
  const names = [...text.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name)
  const linux = process.platform === 'linux' ? ['process_open_fds', 'process_max_fds'] : []
  for (const name of [
    'process_cpu_seconds_total',
    'process_resident_memory_bytes',
    'process_start_time_seconds',
    ...linux,
    'nodejs_eventloop_lag_p99_seconds',
    'nodejs_version_info',
  ]) {
    t.ok(names.includes(name), name)
  }
  t.match(text, /^process_resident_memory_bytes \d+$/m)
  t.match(metrics.contentType, /^text\/plain/)
})

t.test('the lag of the event loop is what its timer came late, without the period of the timer', async t => {
  const metrics = new Metrics()
  metrics.observeProcess()
  const lag = async (figure: string): Promise<number> =>
    Number((await lines(metrics, `nodejs_eventloop_lag_${figure}seconds`))[0]!.split(' ')[1])
  const blockedMs = 1500
  let longest = 0
  while (longest === 0) {
    const until = performance.now() + blockedMs
    while (performance.now() < until);
    await new Promise(resolve => setImmediate(resolve))
    longest = await lag('max_')
  }
  t.ok(longest > blockedMs / 2e3, `${longest} s`)
  t.ok((await lag('p99_')) <= longest, 'since the last scrape')
})

t.test('only counters end with _total, those of the process too', async t => {
  const metrics = new Metrics()
  metrics.observeProcess()
  const types = [...(await metrics.render()).matchAll(/^# TYPE (\w+) (\w+)$/gm)]
  t.ok(types.length > 15)
  for (const [, name, type] of types) t.equal(name!.endsWith('_total'), type === 'counter', name!)
})

t.test('the build says which version and commit run, and on which Node', async t => {
  const metrics = new Metrics()
  metrics.observeProcess()
  const { version, commit = '' } = buildInfo()
  t.match(version, /^\d+\.\d+\.\d+/)
  t.strictSame(await lines(metrics, 'homing_build_info'), [
    `homing_build_info{version="${version}",node="${process.versions.node}",commit="${commit}"} 1`,
  ])
})

const git = spawnSync('git', ['rev-parse', '--show-prefix', 'HEAD'], {
  cwd: import.meta.dirname,
  encoding: 'utf8',
})
const [prefix, head] = git.status === 0 ? git.stdout.split('\n') : []
const skip = prefix === 'packages/metrics/test/' ? false : 'this is no checkout of git'

t.test('the commit of a checkout is the one that git tells', { skip }, async t => {
  t.equal(buildInfo().commit, head!.slice(0, 12))
})

t.test('figures that somebody else keeps are taken over whole', async t => {
  const metrics = new Metrics()
  const sent = metrics.counter({ name: 'homing_actor_sent_messages_total', help: 'h', labels: ['thread'] })
  const times = metrics.histogramTotals({
    name: 'homing_actor_handler_seconds',
    help: 'h',
    labels: ['thread'],
    buckets: [0.001, 0.01],
  })
  sent.replaceTotals([
    { total: 1, labels: { thread: 'a' } },
    { total: 2, labels: { thread: 'gone' } },
  ])
  sent.replaceTotals([{ total: 3, labels: { thread: 'a' } }])
  t.strictSame(await lines(metrics, 'homing_actor_handler_seconds'), [])
  times.replace([{ counts: [5, 2, 1], sum: 0.5, labels: { thread: 'a' } }])
  t.strictSame(await lines(metrics, 'homing_actor_sent_messages_total'), [
    'homing_actor_sent_messages_total{thread="a"} 3',
  ])
  t.strictSame(await lines(metrics, 'homing_actor_handler_seconds'), [
    'homing_actor_handler_seconds_bucket{thread="a",le="0.001"} 5',
    'homing_actor_handler_seconds_bucket{thread="a",le="0.01"} 7',
    'homing_actor_handler_seconds_bucket{thread="a",le="+Inf"} 8',
    'homing_actor_handler_seconds_sum{thread="a"} 0.5',
    'homing_actor_handler_seconds_count{thread="a"} 8',
  ])
})

t.test('what is included stands behind the own figures, and stays when it cannot be had', async t => {
  const metrics = new Metrics()
  metrics.gauge({ name: 'homing_gateway_open_requests', help: 'h' }).set(1)
  const other = new Metrics()
  const sent = other.counter({ name: 'homing_actor_sent_messages_total', help: 'h' })
  let isThere = true
  metrics.include(() => (isThere ? other.render() : Promise.reject(new Error('gone'))))
  sent.add(3)
  const both = async () => [
    ...(await lines(metrics, 'homing_gateway_open_requests')),
    ...(await lines(metrics, 'homing_actor_sent')),
    ...(await lines(metrics, 'homing_metrics_collector')),
  ]
  const shown = ['homing_gateway_open_requests 1', 'homing_actor_sent_messages_total 3']
  t.strictSame(await both(), [...shown, 'homing_metrics_collector_failures_total 0'])
  isThere = false
  sent.add(1)
  await metrics.render()
  t.strictSame((await both()).slice(0, 2), shown)
  t.match(await metrics.render(), /^homing_metrics_collector_failures_total [1-9]/m)
  const names = [...(await metrics.render()).matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name)
  t.equal(new Set(names).size, names.length, 'each metric is declared once')
})

t.test('a table without labels has series only while it has a row', async t => {
  const metrics = new Metrics()
  const table = metrics.table<number, never>([], [['homing_test_rows_total', 'Rows.', row => row]])
  const series = async () => (await metrics.render()).match(/^homing_test_rows_total .*$/gm)
  t.equal(await series(), null)
  table.update([{ row: 3, labels: {} }])
  t.strictSame(await series(), ['homing_test_rows_total 3'])
  table.replace([])
  t.equal(await series(), null)
})

t.test('a table has a metric for each column and a series for each row that has a value', async t => {
  const metrics = new Metrics()
  const table = metrics.table<{ readonly sent: number; readonly waiting?: number }, 'thread'>(
    ['thread'],
    [
      ['homing_actor_sent_messages_total', 'h', row => row.sent],
      ['homing_actor_waiting_messages', 'h', row => row.waiting],
    ],
  )
  table.replace([
    { row: { sent: 1, waiting: 4 }, labels: { thread: 'a' } },
    { row: { sent: 2 }, labels: { thread: 'b' } },
  ])
  const shown = async () => (await metrics.render()).split('\n').filter(line => /^homing|^# TYPE/.test(line))
  const types = [
    '# TYPE homing_actor_sent_messages_total counter',
    '# TYPE homing_actor_waiting_messages gauge',
  ]
  t.strictSame(await shown(), [
    types[0],
    'homing_actor_sent_messages_total{thread="a"} 1',
    'homing_actor_sent_messages_total{thread="b"} 2',
    types[1],
    'homing_actor_waiting_messages{thread="a"} 4',
  ])
  table.update([{ row: { sent: 5 }, labels: { thread: 'a' } }])
  t.strictSame(
    (await shown()).sort(),
    [
      ...types,
      'homing_actor_sent_messages_total{thread="a"} 5',
      'homing_actor_sent_messages_total{thread="b"} 2',
    ].sort(),
    'what is updated has no value any more where it has none now',
  )
  table.replace([{ row: { sent: 6 }, labels: { thread: 'b' } }])
  t.strictSame(await shown(), [types[0], 'homing_actor_sent_messages_total{thread="b"} 6', types[1]])
})

t.test('a scrape does not have Node list its handles, which may end the process', async t => {
  const metrics = new Metrics()
  metrics.observeProcess()
  let listed = 0
  for (const name of ['_getActiveHandles', '_getActiveRequests'] as const)
    t.intercept(process as unknown as Record<string, unknown>, name, {
      value: () => {
        listed++
        return []
      },
    })
  const text = await metrics.render()
  t.match(text, /^nodejs_active_resources\{type="/m)
  t.equal(listed, 0)
})

t.test('a row that has no value for one metric costs that metric alone, and is counted', async t => {
  const metrics = new Metrics()
  const table = metrics.table<{ readonly gaps?: { readonly count: number } }, 'worker'>(
    ['worker'],
    [
      ['homing_listener_gaps_total', 'h', row => row.gaps!.count],
      ['homing_listener_rows_total', 'h', () => 1],
    ],
  )
  metrics.collect(() =>
    table.replace([
      { row: {}, labels: { worker: 'a\nb' } },
      { row: {}, labels: { worker: 'b' } },
    ]),
  )
  await metrics.render()
  t.strictSame(await lines(metrics, 'homing_listener_gaps_total'), [])
  t.equal((await lines(metrics, 'homing_listener_rows_total')).length, 2)
  const [failures] = await lines(metrics, 'homing_metrics_collector_failures_total')
  t.match(failures, / [1-9]$/)
})

t.test('a family of many series is written in parts, and reads as one', async t => {
  const metrics = new Metrics()
  const workers = Array.from({ length: 1001 }, (_, i) => `w${i}`)
  const gauge = metrics.gauge({ name: 'homing_gateway_open_requests', help: 'one\ntwo', labels: ['worker'] })
  gauge.replace(workers.map((worker, i) => ({ value: i, labels: { worker } })))
  const latency = metrics.histogram({
    name: 'homing_router_decision_seconds',
    help: 'h',
    labels: ['worker'],
    buckets: [0.1, 1],
  })
  for (const worker of workers) latency.observe(0.5, { worker })
  metrics.gauge({ name: 'homing_gateway_open_bytes', help: 'none yet', labels: ['worker'] })
  let turns = 0
  await metrics.gather()
  const text = await metrics.write(() => {
    turns++
    return Promise.resolve()
  })
  t.ok(turns > 25, `${turns} turns of others`)
  const families = text.split('\n\n').map(family => family.split('\n').filter(line => line !== ''))
  t.strictSame(families[0], [
    '# HELP homing_gateway_open_requests one\\ntwo',
    '# TYPE homing_gateway_open_requests gauge',
    ...workers.map((worker, i) => `homing_gateway_open_requests{worker="${worker}"} ${i}`),
  ])
  t.equal(families[1]!.length, 2 + 5 * workers.length)
  t.equal(families[1]!.filter(line => line.startsWith('#')).length, 2)
  t.strictSame(families[2], [
    '# HELP homing_gateway_open_bytes none yet',
    '# TYPE homing_gateway_open_bytes gauge',
  ])
  t.equal(families.length, 3)
})
