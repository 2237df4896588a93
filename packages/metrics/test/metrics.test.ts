import t from 'tap'
import { faultOfMetricName, Metrics } from '../src/index.ts'

const lines = async (metrics: Metrics, name: string) =>
  (await metrics.render()).split('\n').filter(line => line.startsWith(name))

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

t.test('figures of the process are there when asked for', async t => {
  const metrics = new Metrics()
  metrics.observeProcess()
  t.match(await metrics.render(), /homing_process_resident_memory_bytes \d+/)
  t.match(metrics.contentType, /^text\/plain/)
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
