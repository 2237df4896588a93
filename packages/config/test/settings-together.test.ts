/** Settings that follow from each other, or do not go together. */

import t from 'tap'
import { completeSettings, parseSettings, routerCommand, sidecarCommand } from '../src/index.ts'
import { faultsOf, machine } from './router-faults.ts'

t.test('an index that cannot be divided among its threads is a fault', async t => {
  t.strictSame(faultsOf(['--index-bytes', '1MiB', '--router-event-threads', '64']), [
    '--index-bytes leaves 16384 bytes for each of --router-event-threads 64: with --worker-slots-max 1024 each needs 212992',
  ])
  t.strictSame(faultsOf(['--index-bytes', '64GiB', '--router-event-threads', '7']), [
    '--index-bytes leaves 9817068105 bytes for each of --router-event-threads 7: each can use 4026531840, so name more threads',
  ])
  t.strictSame(
    parseSettings(routerCommand, ['--index-bytes', '1MiB', '--router-event-threads', '4'], {}).settings
      .indexBytes,
    2 ** 20,
  )
})

t.test('one port for clients and operators both is a fault, unless each is picked', async t => {
  t.strictSame(faultsOf(['--port', '8100', '--admin-port', '8100']), [
    '--admin-port 8100 is the same as --port: choose another, or leave it out',
  ])
  t.strictSame(faultsOf(['--port', '0', '--admin-port', '0', '--metrics-port', '0']), [])
  t.strictSame(faultsOf(['--admin-port', '8100', '--metrics-port', '8100']), [
    '--metrics-port 8100 is the same as --admin-port: choose another, or leave it out',
  ])
  t.strictSame(faultsOf(['--metrics-port', '8000']), [
    '--metrics-port 8000 is the same as --port: choose another, or leave it out',
  ])
})

t.test('predictions until events come are a fault where no events are wanted', async t => {
  t.strictSame(faultsOf(['--router-predicted-ttl-secs', '5', '--no-kv-events']), [
    '--router-predicted-ttl-secs covers the time until KV events come, but --no-kv-events disables them: use --router-ttl-secs',
  ])
})

t.test('an unknown policy is refused with the nearest name', async t => {
  t.strictSame(faultsOf(['--router-policy', 'prodcut']), [
    '--router-policy: "prodcut" is not one of auto, linear, product, est-ttft, threshold; did you mean product?',
  ])
})

t.test('options of policies that are not chosen, and an estimate of nothing, are refused', async t => {
  for (const argv of [
    ['--est-ttft-ms-per-token', '1'],
    ['--router-policy', 'product', '--router-decode-active-request-weight', '1'],
    ['--router-policy', 'linear', '--router-guard-share', '0.1'],
    ['--router-temperature', '1', '--router-guard-share', '0.1'],
    ['--router-mode', 'random', '--router-guard-share', '0.1'],
    ['--selection-module', 'mine.ts', '--router-guard-share', '0.1'],
    ['--selection-module', 'mine.ts', '--router-mode', 'random'],
  ]) {
    t.match(faultsOf(argv), [/no effect/], argv.join(' '))
  }
  const none = ['--est-ttft-ms-per-token', '0', '--est-ttft-attention-ms-per-million-pairs', '0']
  t.match(faultsOf(['--router-policy', 'est-ttft', ...none]), [/all workers would cost the same/])
  t.match(faultsOf(['--selection-module', 'mine.ts', '--router-policy', 'product']), [
    /leave one of them out/,
  ])
})

t.test('the policy is auto, unless something is given that only the linear rule has', async t => {
  const policyOf = (argv: readonly string[], env = {}): string =>
    parseSettings(routerCommand, argv, env).settings.routerPolicy
  t.equal(policyOf([]), 'auto')
  t.equal(policyOf(['--kv-overlap-score-weight', '1']), 'linear', 'its default, given')
  t.equal(policyOf(['--router-temperature', '0.5']), 'linear')
  t.equal(policyOf(['--router-temperature', '0', '--router-decode-active-request-weight', '0']), 'auto')
  t.equal(policyOf([], { HOMING_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT: '1' }), 'linear')
  t.equal(policyOf(['--router-policy', 'product', '--router-temperature', '0.5']), 'product')
  t.equal(policyOf(['--router-policy', 'auto', '--kv-overlap-score-weight', '0']), 'auto')
  t.match(faultsOf(['--router-policy', 'auto', '--kv-overlap-score-weight', '4']), [/no effect on .* auto/])
  t.equal(completeSettings(routerCommand, { overlapWeight: 4 }).routerPolicy, 'linear')
  t.equal(completeSettings(routerCommand, {}).routerPolicy, 'auto')
})

t.test(
  'where caches are ignored the index takes one thread and the least memory, unless it was sized',
  async t => {
    const of = (...argv: string[]) =>
      parseSettings(routerCommand, ['--kv-overlap-score-weight', '0', ...argv], {}, { machine }).settings
    t.match(of(), { eventThreads: 1, indexBytes: 2 ** 20 })
    t.equal(of('--worker-slots-max', '16384').eventThreads, 1, 'and it suits its tables')
    t.match(of('--index-bytes', '64MiB'), { eventThreads: 4, indexBytes: 2 ** 26 })
    t.equal(completeSettings(routerCommand, { overlapWeight: 0 }).eventThreads, 1)
  },
)

t.test('a policy and a queue that follow from other options are told', async t => {
  const read = (...argv: string[]) => parseSettings(routerCommand, argv, {})
  for (const argv of [
    ['--router-temperature', '0'],
    ['--router-policy', 'linear'],
    ['--router-mode', 'random', '--router-temperature', '1'],
    ['--router-queue-policy', 'wspt'],
  ]) {
    t.strictSame(read(...argv).warnings, [], argv.join(' '))
  }
  t.strictSame(read('--kv-overlap-score-weight', '1').warnings, [
    '--kv-overlap-score-weight is given without a policy, so --router-policy is linear, and no request waits in the router (--router-queue-threshold 2 would hold some); name a policy to choose another',
  ])
  const withThreshold = read('--router-temperature', '1', '--router-queue-threshold', '2')
  t.match(withThreshold.warnings, [/^--router-temperature .* is linear; name a policy/])
})

t.test('an order of the queue turns the queue on, or says why it does nothing', async t => {
  const read = (...argv: string[]) =>
    parseSettings(routerCommand, ['--router-queue-policy', 'wspt', ...argv], {})
  t.equal(read('--router-policy', 'linear').settings.queueThreshold, 'auto', 'which is 2 there')
  t.equal(read('--router-temperature', '1').settings.queueThreshold, 'auto')
  t.equal(read().settings.queueThreshold, undefined, 'policy auto has a queue')
  t.strictSame(read('--router-policy', 'linear').warnings, [])
  t.strictSame(read('--router-policy', 'linear', '--router-queue-threshold', 'None').warnings, [
    '--router-queue-policy wspt has no effect: --router-queue-threshold none lets no request wait',
  ])
  const uncounted = read('--router-policy', 'linear', '--no-router-track-prefill-tokens')
  t.equal(uncounted.settings.queueThreshold, undefined)
  t.match(uncounted.warnings, [/^--router-queue-policy wspt has no effect: .* does not count$/])
  const embedded = completeSettings(routerCommand, { routerPolicy: 'linear', queueOrder: 'wspt' })
  t.equal(embedded.queueThreshold, 'auto')
})

t.test('names and variables of the credit form are understood', async t => {
  const { settings } = parseSettings(
    routerCommand,
    ['--router-prefill-load-scale', '4', '--router-kv-overlap-score-credit', '0.5'],
    { DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY: '0.1', DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT: '2' },
  )
  t.match(settings, { overlapWeight: 4, overlapCredit: 0.5, creditDecay: 0.1, activeRequestWeight: 2 })
})

t.test('settings that have no effect together are refused', async t => {
  t.match(faultsOf(['--worker', 'http://a:1', '--demo-speed', '2']), [/no effect when workers are named/])
  t.strictSame(faultsOf(['--demo-speed', '2']), [])
})

t.test('limits of requests are those of a sidecar that takes requests', async t => {
  const refused = (argv: readonly string[], fault: RegExp): void => {
    const given = ['--events', 'tcp://h:5557', '--event-plane', 'nats', '--worker', 'h:8000', ...argv]
    t.throws(() => parseSettings(sidecarCommand, given, {}), { message: fault })
  }
  for (const limit of ['--max-open-requests', '--max-body-bytes', '--max-bodies-bytes', '--body-timeout'])
    refused([limit, '2000'], new RegExp(`${limit} has no effect without --request-plane nats`))
  for (const given of ['--request-port', '--max-tcp-streams', '--max-tcp-connections'])
    refused([given, '2000'], new RegExp(`${given} has no effect without --request-plane tcp`))
  refused(['--role', 'prefill'], /--role needs --register/)
  const takes = ['--register', 'test', '--request-plane', 'nats']
  refused(
    [...takes, '--max-bodies-bytes', '2000', '--max-body-bytes', '4000'],
    /--max-bodies-bytes 2000 is less than one body of --max-body-bytes 4000/,
  )
  refused([...takes, '--body-timeout', '500ms'], /--body-timeout/)
})
