/** Settings of `homing router`: the engines behind it, and how they are probed. */

import { openName } from '@homing/base'
import type { SettingDescriptor } from '../descriptor.ts'
import { etcdSettings } from '../etcd-settings.ts'
import { shared } from '../shared-settings.ts'
import { tcpClientSettings } from '../tcp-settings.ts'
import { HOUR_MS, KIB, MIB, SECOND_MS } from '../units.ts'

export const workerSettings = [
  {
    key: 'workers',
    name: 'worker',
    group: 'Workers',
    kind: 'list',
    placeholder: 'URL',
    separator: 'comma or space',
    aliases: ['workers'],
    unsetMeans: 'a demo fleet of simulated engines',
    mustNameOne: true,
    env: 'HOMING_WORKERS',
    check: faultOfWorkerUrl,
    help: 'Base URL of an engine, with the path under which its routes are, if it has one; give it once per engine. Put what the engine does not report itself into the query: http://h:8001?events=5557&replay=6557&ranks=2 (also model=, block_size=, max_batched_tokens=, kv_blocks=, taints=, role=, handover=, bootstrap_host=, bootstrap_port=, topic=, events_host=, nats=, requests=, id=, key_file=, key_env=).',
  },
  {
    key: 'workersFile',
    name: 'workers-file',
    group: 'Workers',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'workers are those of --worker, and those added by POST /workers',
    help: 'File with more workers, one URL a line or as YAML (a list, or a map with workers). It is looked at every second: a worker whose line comes is added, one whose line goes drains. A file that cannot be used changes nothing, and the log says why.',
  },
  {
    key: 'workerNamespace',
    name: 'worker-namespace',
    group: 'Workers',
    kind: 'text',
    placeholder: 'NAME',
    default: undefined,
    unsetMeans: 'no worker can register itself',
    check: text =>
      /^[A-Za-z0-9_-]{1,64}$/.test(text) ? undefined : "is not 1 to 64 letters, digits, '-' and '_'",
    help: 'Take workers that register themselves at the NATS broker (--nats), or at etcd (--discovery-backend etcd), under this name: they join when they do, and leave when they say so or are silent for five seconds. A program that may publish at the broker, or write at etcd, may register.',
  },
  {
    ...etcdSettings.discovery,
    group: 'Workers',
    choices: ['nats', 'etcd', 'file', 'mem', 'dns', 'kubernetes'],
    // Theirs goes by resources of their own operator, which say nothing to us.
    envAliases: [{ name: 'DYN_DISCOVERY_BACKEND', read: text => (text === 'kubernetes' ? undefined : text) }],
    help: 'Where workers are found that are not named here. nats, etcd: at the NATS broker (--nats) or at etcd (--etcd), where they register themselves under --worker-namespace; with etcd, routers with --router-replica-endpoint find each other there, too. file: in --workers-file. dns: behind the names of --dns-name. kubernetes: pods of the Services of --kubernetes-service. mem: nowhere; workers are those of --worker, and those added by POST /workers.',
  },
  {
    ...shared.requestPlane,
    group: 'Workers',
    envAliases: [{ name: 'DYN_REQUEST_PLANE' }],
    help: 'How requests reach the workers. http: at their URLs. nats: over the NATS broker (--nats) to those whose URL names a subject with requests=SUBJECT, as it is where they register themselves so; to all others at their URLs. tcp: over one connection for all requests of a worker, to those whose URL names where they take it with requests=tcp://HOST:PORT; to all others at their URLs.',
  },
  {
    key: 'requestWindowBytes',
    name: 'request-window-bytes',
    group: 'Workers',
    kind: 'size',
    default: 256 * KIB,
    min: 4 * KIB,
    max: 64 * MIB,
    help: 'With --request-plane nats or tcp: most bytes of an answer that are on the way, or wait in the router for a client that reads slowly. Then the worker stops until the client has read.',
  },
  ...tcpClientSettings,
  {
    ...shared.engineKeyFile,
    help: 'File with the API key of the engines. Every request to them carries it, instead of what the client sent. Worker URLs name others with key_file=PATH or key_env=NAME. The file is read again before each probe, so a new key needs no restart.',
  },
  {
    key: 'workerKeyDirectory',
    name: 'worker-key-dir',
    group: 'Workers',
    kind: 'text',
    placeholder: 'DIR',
    default: undefined,
    unsetMeans: 'POST /workers takes no key_file',
    help: 'Directory with the key files that a worker added over the API may name with key_file=PATH. Links in it must not lead out of it. Workers of the command line and of --workers-file may name any file; registered workers none. Put nothing but keys of engines there: the caller chooses the host to which a key is sent.',
  },
  {
    key: 'workerKeyEnvPrefix',
    name: 'worker-key-env-prefix',
    group: 'Workers',
    kind: 'text',
    placeholder: 'PREFIX',
    default: undefined,
    unsetMeans: 'POST /workers takes no key_env',
    check: faultOfPrefix,
    help: 'What the names of the variables begin with that a worker added over the API may name with key_env=NAME, such as ENGINE_KEY_. The rule is that of --worker-key-dir.',
  },
  {
    ...shared.engineCaFile,
    help: 'PEM file with certificates that are believed for https workers, besides those of Node and of the system. Host names are always checked.',
  },
  {
    key: 'probeIntervalMs',
    name: 'probe-interval',
    group: 'Workers',
    kind: 'duration',
    default: 5 * SECOND_MS,
    min: 100,
    max: HOUR_MS,
    help: 'Pause between two probes of a worker. A worker that went down takes requests again after the first probe that it answers.',
  },
  {
    key: 'probeTimeoutMs',
    name: 'probe-timeout',
    group: 'Workers',
    kind: 'duration',
    default: 2 * SECOND_MS,
    min: 10,
    max: 10 * SECOND_MS,
    help: 'How long a worker has to answer one request of a probe before it counts as down. The time doubles after each miss, up to 10s.',
  },
  {
    key: 'workerLoadingMsMax',
    name: 'worker-loading-timeout',
    group: 'Workers',
    kind: 'duration',
    default: 30 * 60 * SECOND_MS,
    min: 0,
    max: 24 * HOUR_MS,
    zeroMeans: 'a model that no worker lists is always answered with 404',
    help: 'How long a worker that does not answer may still be loading. Until then, a request for a model that no worker lists gets 503 with Retry-After, since this worker may bring it; after that, 404.',
  },
  {
    key: 'engineMetricsIntervalMs',
    name: 'engine-metrics-interval',
    group: 'Workers',
    kind: 'duration',
    default: 5 * SECOND_MS,
    min: 0,
    max: HOUR_MS,
    zeroMeans:
      'engines are not asked, and --active-decode-blocks-threshold goes by the count of the router alone',
    help: "Pause between two looks at the metrics of an engine (GET /metrics), for the share of its KV cache that is in use as the engine itself says. GET /workers shows it beside the router's own count.",
  },
  {
    key: 'drainMsMax',
    name: 'worker-drain-timeout',
    group: 'Workers',
    kind: 'duration',
    default: 10 * 60 * SECOND_MS,
    min: 1,
    max: 24 * HOUR_MS,
    help: 'Longest time that a worker drains (POST /workers/ID/drain). Then it leaves the fleet: what it still has goes to other workers where that is possible, streams that have begun within --migration-limit; the rest goes on by itself.',
  },
  {
    ...shared.workerSlotsMax,
    unit: 'worker keys',
    help: 'Most worker keys (workers times their data-parallel ranks) in the index and the load tables.',
  },
] as const satisfies readonly SettingDescriptor[]

function faultOfWorkerUrl(text: string): string | undefined {
  const url = URL.parse(text)
  if (/,\s*https?:/i.test(text)) return 'has several URLs: give --worker once for each'
  if (url === null || url.hostname === '') return 'is not a URL such as http://10.0.0.1:8001'
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    return `has the scheme ${openName(url.protocol.slice(0, -1))}; use http or https`
  // The reader of workers refuses a user name, and does not repeat what may be a secret.
  return undefined
}

function faultOfPrefix(text: string): string | undefined {
  if (/^[A-Za-z_][A-Za-z0-9_]{2,}$/.test(text)) return undefined
  return 'is no beginning of names of variables; use three letters, digits or _ or more, as in ENGINE_KEY_'
}
