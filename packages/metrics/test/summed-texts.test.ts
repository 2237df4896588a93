/** Sums of the metrics of several sources. */

import t from 'tap'
import { Metrics, SummedTexts } from '../src/index.ts'

function source() {
  const metrics = new Metrics()
  const requests = metrics.counter({
    name: 'homing_test_requests_total',
    help: 'Requests.',
    labels: ['route'],
  })
  const open = metrics.gauge({ name: 'homing_test_open_requests', help: 'Open ones.' })
  const known = metrics.gauge({ name: 'homing_test_known_responses', help: 'Known at each.' })
  const seconds = metrics.histogram({ name: 'homing_test_wait_seconds', help: 'Waits.', buckets: [1, 5] })
  return { metrics, requests, open, known, seconds }
}

t.test('counters, gauges and histograms of two sources add up, and one family is there once', async t => {
  const [a, b] = [source(), source()]
  a.requests.add(3, { route: 'chat' })
  a.requests.add(1, { route: 'a "quoted" {route}, with spaces' })
  b.requests.add(4, { route: 'chat' })
  a.open.set(2)
  b.open.set(5)
  a.known.set(7)
  b.known.set(6)
  a.seconds.observe(0.5)
  b.seconds.observe(3)
  const summed = new SummedTexts(['homing_test_known_responses'])
  summed.take('a', { life: '1', text: await a.metrics.render() })
  summed.take('b', { life: '1', text: await b.metrics.render() })
  const text = summed.render()
  for (const line of [
    'homing_test_requests_total{route="chat"} 7',
    'homing_test_requests_total{route="a \\"quoted\\" {route}, with spaces"} 1',
    'homing_test_open_requests 7',
    'homing_test_known_responses 7',
    'homing_test_wait_seconds_bucket{le="1"} 1',
    'homing_test_wait_seconds_bucket{le="5"} 2',
    'homing_test_wait_seconds_sum 3.5',
    'homing_test_wait_seconds_count 2',
  ])
    t.ok(text.split('\n').includes(line), line)
  t.equal(text.match(/# TYPE homing_test_requests_total counter/g)?.length, 1)
})

t.test('what a life of a source has counted stays when the next begins; its gauges do not', async t => {
  const summed = new SummedTexts()
  const take = async (name: string, life: string, requests: number, open: number): Promise<string> => {
    const one = source()
    one.requests.add(requests, { route: 'chat' })
    one.open.set(open)
    summed.take(name, { life, text: await one.metrics.render() })
    return summed.render()
  }
  await take('a', '1', 10, 3)
  await take('b', '1', 1, 1)
  t.match(await take('a', '1', 12, 4), /^homing_test_requests_total\{route="chat"\} 13$/m)
  const later = await take('a', '2', 1, 0)
  t.match(later, /^homing_test_requests_total\{route="chat"\} 14$/m)
  t.match(later, /^homing_test_open_requests 1$/m)
  t.match(await take('a', '3', 5, 0), /^homing_test_requests_total\{route="chat"\} 19$/m)
})

t.test('one source alone is shown as it is', async t => {
  const one = source()
  one.requests.add(2, { route: 'chat' })
  one.seconds.observe(9)
  const text = await one.metrics.render()
  const summed = new SummedTexts()
  summed.take('a', { life: '1', text })
  const lines = (whole: string): string[] =>
    whole
      .split('\n')
      .filter(line => line !== '')
      .sort()
  t.strictSame(lines(summed.render()), lines(text))
})

t.test('a series that only an ended life has counted stays', async t => {
  const summed = new SummedTexts()
  const [first, next] = [source(), source()]
  first.requests.add(2, { route: 'rare' })
  next.requests.add(1, { route: 'chat' })
  summed.take('a', { life: '1', text: await first.metrics.render() })
  summed.take('a', { life: '2', text: await next.metrics.render() })
  const lines = summed.render().split('\n')
  for (const line of [
    'homing_test_requests_total{route="rare"} 2',
    'homing_test_requests_total{route="chat"} 1',
  ])
    t.ok(lines.includes(line), line)
})
