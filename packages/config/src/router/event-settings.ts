/** Settings of `homing router`: what it learns of the caches of engines, and where that is kept. */

import type { SettingDescriptor } from '../descriptor.ts'
import { shared } from '../shared-settings.ts'
import { streamSettings } from '../stream-settings.ts'
import { HOUR_MS, SECOND_MS } from '../units.ts'

const ETCD_PORT = 2379

export const eventSettings = [
  {
    ...shared.eventPlane,
    group: 'KV events and index',
    envAliases: [{ name: 'DYN_EVENT_PLANE' }],
    help: 'How the KV events of workers come that do not say it themselves. zmq: from the ports that the engine reports, or events= and replay= name. nats: from the NATS broker, where a sidecar or the engine publishes them under homing.kv.HOST_PORT; nats=SUBJECT in the URL of a worker names another subject.',
  },
  {
    key: 'kvEvents',
    name: 'kv-events',
    group: 'KV events and index',
    kind: 'flag',
    default: true,
    aliases: ['router-kv-events', 'use-kv-events'],
    envAliases: [{ name: 'DYN_ROUTER_USE_KV_EVENTS' }, { name: 'DYN_ROUTER_KV_EVENTS' }],
    help: 'Subscribe to the KV events of the workers. With --no-kv-events, prompts count as cached where they were sent (trust approximate), as for workers that publish no events.',
  },
  {
    key: 'guessTtlWithoutEventsMs',
    name: 'router-ttl-secs',
    group: 'KV events and index',
    kind: 'duration',
    default: 120 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
    aliases: ['router-ttl'],
    envAliases: [{ name: 'DYN_ROUTER_TTL_SECS' }, { name: 'DYN_ROUTER_TTL' }],
    help: 'How long a prompt counts as cached at the worker that it was sent to, if there are no KV events. Sending it again renews the time. Lower this if caches turn over faster.',
  },
  {
    key: 'guessBlocksMax',
    name: 'router-max-tree-size',
    group: 'KV events and index',
    kind: 'integer',
    default: 2 ** 20,
    min: 1,
    max: 2 ** 26,
    unit: 'blocks',
    envAliases: [{ name: 'DYN_ROUTER_MAX_TREE_SIZE' }],
    help: 'Most blocks that count as cached because they were sent to a worker, of all workers together. Beyond it, those that expire first are forgotten. One worker has no more than the cache that it reports, and all workers of an event thread have room for one block per 128 bytes of its part of --index-bytes.',
  },
  {
    key: 'pruneTargetRatio',
    name: 'router-prune-target-ratio',
    group: 'KV events and index',
    kind: 'number',
    default: 0.8,
    min: 0,
    max: 1,
    envAliases: [{ name: 'DYN_ROUTER_PRUNE_TARGET_RATIO' }],
    help: 'When more blocks than --router-max-tree-size, or than the cache of a worker has, were sent, those that expire first are forgotten until this share of it is left.',
  },
  {
    key: 'guessTtlUntilEventsMs',
    name: 'router-predicted-ttl-secs',
    group: 'KV events and index',
    kind: 'duration',
    default: 0,
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'only events count where there are any',
    envAliases: [{ name: 'DYN_ROUTER_PREDICTED_TTL_SECS' }],
    help: 'How long a prompt counts as cached at a worker with KV events before its events confirm it. A few seconds let requests that arrive together share a prompt that is still being computed.',
  },
  {
    key: 'hostCacheHitWeight',
    name: 'router-host-cache-hit-weight',
    group: 'KV events and index',
    kind: 'number',
    default: 0.75,
    min: 0,
    max: 1,
    envAliases: [{ name: 'DYN_ROUTER_HOST_CACHE_HIT_WEIGHT' }],
    help: "Weight of a block in the memory of a worker's host, when one on the device counts 1.",
  },
  {
    key: 'diskCacheHitWeight',
    name: 'router-disk-cache-hit-weight',
    group: 'KV events and index',
    kind: 'number',
    default: 0.25,
    min: 0,
    max: 1,
    envAliases: [{ name: 'DYN_ROUTER_DISK_CACHE_HIT_WEIGHT' }],
    help: 'Weight of a block on disk, or in a store outside the worker, when one on the device counts 1.',
  },
  {
    ...shared.blockSizeTokens,
    group: 'KV events and index',
    unsetMeans: 'what each worker reports, or its first event shows',
    aliases: ['block-size', 'router-block-size'],
    envAliases: [{ name: 'DYN_KV_CACHE_BLOCK_SIZE' }],
    help: 'Tokens in a block of the KV cache. It must match the engines, or no prefix is ever found; set it only for engines that do not report it.',
  },
  {
    key: 'eventThreads',
    name: 'router-event-threads',
    group: 'KV events and index',
    kind: 'integer',
    default: {
      says: 'min(4, cores − 1), at least 1',
      of: machine => Math.max(1, Math.min(4, machine.cores - 1)),
    },
    min: 1,
    max: 64,
    unit: 'threads',
    envAliases: [{ name: 'DYN_ROUTER_EVENT_THREADS' }],
    help: 'Threads that receive KV events, each with one shard of the index. Use more when one thread cannot apply the events of all workers.',
  },
  {
    ...shared.indexBytes,
    group: 'KV events and index',
    help: 'Memory that the whole index may take, divided evenly among its shards. It never grows past this; blocks that find no room are left out and counted.',
  },
  {
    ...shared.replayTimeoutMs,
    group: 'KV events and index',
    help: 'How long a worker may be silent during a replay of past events before it is asked again. Meanwhile its cache is trusted less.',
  },
  {
    ...shared.checkpointDirectory,
    group: 'KV events and index',
    help: 'Directory for checkpoints: the index content of each event source. After a restart the index continues from there, even if the engine no longer repeats its whole history. A checkpoint counts only when the engine repeats the batches that it ends with.',
  },
  {
    ...shared.checkpointIntervalMs,
    group: 'KV events and index',
    help: 'How often the checkpoint of each source is written, if something has changed. Checkpoints are also written at a graceful stop. While one is taken, events of its shard wait: about 0.3 ms per thousand blocks; a source with more than four million blocks gets none.',
  },
  {
    ...streamSettings.durableKvEvents,
    group: 'KV events and index',
    envAliases: [{ name: 'DYN_ROUTER_DURABLE_KV_EVENTS' }, { name: 'DYN_DURABLE_KV_EVENTS' }],
    help: 'Follow the KV events of workers at the NATS broker in a stream that keeps them (JetStream), where their publishers have the option, too. A router that starts after all engines have forgotten their first events then knows their caches from the stream. Needs a broker that was started with -js, and --event-plane nats or workers with nats=.',
  },
  {
    key: 'resetStates',
    name: 'router-reset-states',
    group: 'KV events and index',
    kind: 'flag',
    default: false,
    envAliases: [{ name: 'DYN_ROUTER_RESET_STATES' }],
    help: 'With --router-durable-kv-events: empty the stream of the namespace before this router starts. Routers that run on the same workers keep what they have, but later ones do not learn it from the stream: use it for the first router only, or take another --namespace.',
  },
  {
    key: 'snapshotThreshold',
    name: 'router-snapshot-threshold',
    group: 'KV events and index',
    kind: 'integer',
    default: 1_000_000,
    min: 1,
    max: 2 ** 40,
    unit: 'messages',
    envAliases: [{ name: 'DYN_ROUTER_SNAPSHOT_THRESHOLD' }],
    help: 'With --router-durable-kv-events: when the stream has more messages, one of the routers stores a snapshot of every worker key that it knows exactly at the broker, and purges what the snapshots stand for and all routers have applied. A router that starts then begins from the snapshot.',
  },
  {
    key: 'lockStore',
    name: 'lock-backend',
    group: 'KV events and index',
    kind: 'choice',
    choices: ['jetstream', 'etcd'],
    default: 'jetstream',
    help: 'With --router-durable-kv-events: where the lock is under which one router at a time takes snapshots. jetstream: at the NATS broker of the stream. etcd: at --etcd. All routers of a namespace need the same.',
  },
  {
    key: 'etcdServers',
    name: 'etcd',
    group: 'KV events and index',
    kind: 'list',
    placeholder: 'URL',
    separator: 'comma or space',
    unsetMeans: `http://127.0.0.1:${ETCD_PORT}, where etcd is used`,
    envAliases: [{ name: 'ETCD_ENDPOINTS' }],
    check: faultOfEtcdServer,
    help: 'With --lock-backend etcd: address of an etcd server, such as http://10.0.0.1:2379; give it once for each server of a cluster. It is asked over its JSON gateway, which it has unless it was started without one. Users and passwords are not supported.',
  },
  { ...streamSettings.namespace, group: 'KV events and index', envAliases: [{ name: 'DYN_NAMESPACE' }] },
  {
    ...streamSettings.retentionMs,
    group: 'KV events and index',
    envAliases: [{ name: 'DYN_NATS_STREAM_MAX_AGE' }],
  },
  { ...streamSettings.bytesMax, group: 'KV events and index' },
] as const satisfies readonly SettingDescriptor[]

/** 'http://host:port' of each server, of the one on this machine if none is named. */
export function etcdServersOf(urls: readonly string[]): readonly string[] {
  return urls.length === 0 ? [`http://127.0.0.1:${ETCD_PORT}`] : urls.map(url => url.replace(/\/$/, ''))
}

function faultOfEtcdServer(text: string): string | undefined {
  if (text.includes('@')) return 'leave user and password out of it: they are not supported'
  return /^https?:\/\/(?:\[[0-9a-fA-F:.]+\]|[^\s/:?#[\]]+)(?::\d{1,5})?\/?$/.test(text)
    ? undefined
    : "is not 'http://host:port'"
}
