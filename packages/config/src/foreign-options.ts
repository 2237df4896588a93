/**
 * Options of other KV-aware routers that have no counterpart here, each with what is there instead.
 *
 * An operator who comes from such a router starts this one with the command line and the variables that are
 * there already. So these options stop nothing: each gives one sentence. Options of which the loss would be
 * dangerous (TLS, access) are not here: they stay faults.
 *
 * Source   the frontend, the router and the simulated worker of Dynamo 0.4 to 1.6.
 */

import type { ForeignOption } from './descriptor.ts'

const WORKERS =
  'workers are named with --worker or --workers-file, or register themselves (--worker-namespace)'
const OF_ENGINES = 'it is an option of engines: give it to them'
const OWN_COST =
  '--router-policy auto learns the load of each worker; the other policies count blocks and tokens'
const REMOTE_INDEX = '`homing indexer` is the index as a service of its own'
const HASHES = 'replicas count the blocks that they share by digests of their own'
const PREFILL =
  'one policy places prefill and decode (--router-policy); --router-conditional-disagg-tokens and -share say when a prompt stays at a decode worker'
const FALLBACK =
  'a request whose prefill fails goes to one decode worker whole, unless --enforce-disagg is given'
const SHARED_CACHE = 'blocks outside a worker count with --router-disk-cache-hit-weight'

export const foreignRouterOptions: readonly ForeignOption[] = [
  ...options(WORKERS, [
    'store-kv',
    'namespace-prefix',
    'endpoint',
    'static-endpoint',
    'component',
    'router-min-initial-workers',
  ]),
  ...options('models are those that the workers serve (/v1/models)', ['model-name']),
  ...options('engines keep their events for replay, and this router asks for those that it missed', [
    'enable-local-indexer',
  ]),
  ...options(OF_ENGINES, ['kv-events-config', 'publish-events-and-metrics', 'publish-kv-events']),
  ...options('workers are refused requests by --active-decode-blocks-threshold and its like', [
    'admission-control',
  ]),
  ...options('--kv-overlap-score-weight 0 places by load alone', ['load-aware', 'router-load-aware']),
  ...options(OWN_COST, ['router-prefill-load-model']),
  ...options(REMOTE_INDEX, ['use-remote-indexer', 'serve-indexer']),
  ...options(HASHES, [
    'router-active-sequence-stride',
    'router-tracking-hash',
    'router-tracking-hash-key-file',
    'router-tracking-hash-key-id',
  ]),
  ...options(PREFILL, ['router-conditional-disagg-config', 'router-prefill-policy', 'router-decode-policy']),
  ...options(FALLBACK, ['decode-fallback']),
  ...options(SHARED_CACHE, ['shared-cache-type', 'shared-cache-multiplier']),
]

/** Of simulated engines. */
export const foreignEngineOptions: readonly ForeignOption[] = [
  ...options('its events can always be replayed (--replay-port)', ['enable-local-indexer']),
  ...options('it has an HTTP port of its own; --register NAMESPACE makes it known at a broker', [
    'discovery-backend',
    'store-kv',
    'endpoint',
  ]),
  ...options('the router moves answers that have begun (homing router --migration-limit)', [
    'migration-limit',
  ]),
]

function options(instead: string, names: readonly string[]): readonly ForeignOption[] {
  return names.map(name => ({ name, env: `DYN_${name.toUpperCase().replaceAll('-', '_')}`, instead }))
}
