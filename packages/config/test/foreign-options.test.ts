/** Command lines and variables of other KV-aware routers: they start this one, and what is lost is told. */

import t from 'tap'
import { parseSettings, routerCommand, type SettingDescriptor } from '../src/index.ts'

const { foreign = [] } = routerCommand
const WORKERS =
  'workers are named with --worker or --workers-file, or register themselves (--worker-namespace)'

/** As in guides and deployments of Dynamo 0.4 to 1.0, each flag that they name at least once. */
const LINES: readonly string[] = [
  '--router-mode kv',
  '--router-mode random',
  '--router-mode round-robin',
  '--router-mode kv --port 8000 --router-replica-sync',
  '--router-mode kv --router-temperature 0.5 --http-port 8000',
  '--router-mode kv --http-host 0.0.0.0 --http-port 8000 --kv-cache-block-size 16',
  '--router-mode kv --kv-overlap-score-weight 1.5 --router-temperature 0.0 --use-kv-events',
  '--router-mode kv --kv-overlap-score-weight 0',
  '--router-mode kv --no-kv-events --router-ttl 120 --router-max-tree-size 1048576 --router-prune-target-ratio 0.8',
  '--router-mode kv --router-replica-sync --router-reset-states --router-snapshot-threshold 1000000',
  '--router-mode kv --no-track-active-blocks --active-prefill-tokens-threshold 10000',
  '--router-mode kv --active-decode-blocks-threshold 0.8 --active-prefill-tokens-threshold-frac 2.0',
  '--router-mode kv --busy-threshold 0.95',
  '--router-mode round-robin --static-endpoint dyn://ns.backend.generate --model-name llama',
  '--router-mode kv --router-kv-overlap-score-weight 1.0 --router-queue-threshold 2.0 --router-queue-policy wspt',
  '--router-mode kv --router-queue-threshold None --router-queue-policy fcfs',
  '--router-mode kv --no-router-kv-events --router-ttl-secs 120.0',
  '--router-mode kv --router-durable-kv-events',
  '--router-mode kv --no-router-durable-kv-events --event-plane nats',
  '--router-mode kv --no-router-track-active-blocks',
  '--router-mode kv --router-track-output-blocks --no-router-assume-kv-reuse',
  '--router-mode kv --router-event-threads 4',
  '--router-mode kv --event-plane zmq --discovery-backend file',
  '--router-mode kv --event-plane zmq --discovery-backend mem --request-plane tcp',
  '--router-mode kv --request-plane http --namespace my-namespace --migration-limit 3',
  '--router-mode kv --request-plane nats --enable-local-indexer',
  '--endpoint my-namespace.prefill.generate --router-block-size 64 --router-kv-events',
  '--router-mode kv --publish-events-and-metrics',
  '--router-mode kv --kv-events-config={"enable_kv_cache_events":false}',
]

t.test('command lines of other routers start this one', async t => {
  const names = new Set(foreign.map(({ name }) => name))
  for (const line of LINES) {
    const argv = line.split(' ')
    const { warnings } = parseSettings(routerCommand, argv, {})
    for (const argument of argv) {
      const name = /^--(?:no-)?([^=]+)/.exec(argument)?.[1]
      if (name === undefined || !names.has(name)) continue
      const about = warnings.filter(warning => warning.startsWith(`${argument.split('=')[0]} is ignored: `))
      t.equal(about.length, 1, `${argument} in ${line}`)
    }
  }
})

t.test('what there is instead is told, and the values of such options are no faults', async t => {
  const line = '--discovery-backend mem --lock-backend jetstream --request-plane tcp --port 1'
  const { settings, warnings } = parseSettings(routerCommand, line.split(' '), {})
  t.equal(settings.port, 1)
  t.strictSame(warnings, [])
  t.equal(settings.requestPlane, 'tcp')
})

t.test('variables of deployments start it too', async t => {
  const { settings, warnings } = parseSettings(routerCommand, [], {
    DYN_ROUTER_MODE: 'kv',
    DYN_ROUTER_TEMPERATURE: '0.5',
    DYN_KV_OVERLAP_SCORE_WEIGHT: '1.5',
    DYN_KV_CACHE_BLOCK_SIZE: '16',
    DYN_REQUEST_PLANE: 'tcp',
    DYN_ROUTER_EVENT_THREADS: '4',
    DYN_ROUTER_KV_EVENTS: 'false',
    DYN_ROUTER_QUEUE_THRESHOLD: 'None',
    DYN_DISCOVERY_BACKEND: 'etcd',
    DYN_NAMESPACE_PREFIX: 'a',
    DYN_MIGRATION_LIMIT: '3',
    DYN_LOG: 'info',
    NATS_SERVER: 'nats://nats:4222',
  })
  t.match(settings, {
    temperature: 0.5,
    overlapWeight: 1.5,
    blockSizeTokens: 16,
    requestPlane: 'tcp',
    eventThreads: 4,
    kvEvents: false,
    queueThreshold: 'none',
    discovery: 'etcd',
  })
  t.ok(warnings.includes(`DYN_NAMESPACE_PREFIX is ignored: ${WORKERS}`))
})

t.test('no option is foreign and ours, and each names only options that exist', async t => {
  const ours = new Set(
    routerCommand.settings.flatMap(({ name, aliases = [] }: SettingDescriptor) => [name, ...aliases]),
  )
  for (const { name, instead } of foreign) {
    t.notOk(ours.has(name), name)
    for (const [, option] of instead.matchAll(/--([a-z-]+)/g))
      t.ok(ours.has(option!), `--${option} of ${name}`)
  }
})
