/** The routes of the service: what each takes, does and answers. */

import type { ActorContext } from '@homing/actor'
import { fullBlocks, hashLocals, namespaceSeed } from '@homing/blocks'
import {
  type AccessLog,
  type JsonHandler,
  type JsonRoute,
  jsonRouteTable,
  type RouteKind,
  type RouteTable,
  sendJson,
  serviceHandlers,
  type Turns,
  type ViewPlace,
} from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { sendDump } from './dump-answer.ts'
import type { IndexMetrics } from './index-metrics.ts'
import type { IndexServiceMessage } from './messages.ts'
import type { IndexQuery } from './overlap-answer.ts'
import type { Peers } from './peers.ts'
import type { Rank } from './rank.ts'
import { nameOf, type RankListeners } from './rank-listeners.ts'
import type { PartitionEntry, Registry } from './registry.ts'
import {
  type HashQuery,
  type Partition,
  readHashQuery,
  readPeer,
  readRegistration,
  readTokenQuery,
  readUnregistration,
} from './requests.ts'
import { SERVICE_ROUTES, type ServiceRouteName } from './service-routes.ts'
import type { Shards } from './shards.ts'
import { viewRanks, workersView } from './workers-view.ts'

export interface RoutesOptions {
  readonly context: ActorContext<IndexServiceMessage>
  readonly registry: Registry
  readonly listeners: RankListeners
  readonly shards: Shards
  readonly lookup: IndexQuery
  readonly peers: Peers
  readonly metrics: IndexMetrics
  readonly accessLog: () => AccessLog | undefined
  readonly askMsMax: number
  readonly dumps: Turns
}

const OK = { status: 'ok' }

export function routeTable(options: RoutesOptions): RouteTable<JsonRoute> {
  return jsonRouteTable(SERVICE_ROUTES, KINDS, handlersOf(options))
}

const KINDS: Readonly<Record<string, RouteKind>> = {
  '/health': 'watching',
  '/metrics': 'watching',
  '/query': 'query',
  '/query_by_hash': 'query',
}

function handlersOf(options: RoutesOptions): Readonly<Record<ServiceRouteName, JsonHandler>> {
  const { registry, listeners, peers, accessLog, metrics, context } = options
  return {
    async 'POST /register'(exchange, body, note) {
      const registration = readRegistration(await body())
      note.model = registration.model
      const rank = registry.register(registration)
      listeners.reconcile(rank)
      context.log.info({ rank: nameOf(rank), model: rank.model, endpoint: rank.endpoint }, 'rank registered')
      return sendJson(exchange, 201, OK)
    },
    async 'POST /unregister'(exchange, body, note) {
      const unregistration = readUnregistration(await body())
      note.model = unregistration.model
      for (const rank of registry.unregister(unregistration)) {
        listeners.reconcile(rank)
        context.log.info({ rank: nameOf(rank), model: rank.model }, 'rank unregistered')
      }
      return sendJson(exchange, 200, OK)
    },
    'GET /workers': (exchange, _body, _note, place) => workers(options, exchange, place),
    async 'POST /query'(exchange, body, note) {
      const { tokens, loraName, cacheSalt, moeQuery, ...partition } = readTokenQuery(await body())
      note.model = partition.model
      const entry = registry.partition(partition)
      const localHashes = new Int32Array(fullBlocks(tokens.length, entry.blockSizeTokens) * 2)
      hashLocals(tokens, entry.blockSizeTokens, namespaceSeed({ loraName, cacheSalt }), localHashes)
      return answerQuery(options, exchange, entry, { localHashes, moeQuery })
    },
    async 'POST /query_by_hash'(exchange, body, note) {
      const { localHashes, moeQuery, ...partition } = readHashQuery(await body())
      note.model = partition.model
      return answerQuery(options, exchange, registry.partition(partition), { localHashes, moeQuery })
    },
    'GET /dump': exchange => sendDump({ ...options, clock: context.clock }, exchange),
    async 'POST /register_peer'(exchange, body) {
      peers.add(readPeer(await body()))
      return sendJson(exchange, 201, OK)
    },
    async 'POST /deregister_peer'(exchange, body) {
      peers.remove(readPeer(await body()))
      return sendJson(exchange, 200, OK)
    },
    'GET /peers': exchange => sendJson(exchange, 200, peers.urls),
    ...serviceHandlers({ product: 'homing indexer', routes: SERVICE_ROUTES, metrics, accessLog }),
  }
}

function answerQuery(
  { lookup, shards, metrics }: RoutesOptions,
  exchange: HttpExchange,
  entry: PartitionEntry,
  { localHashes, moeQuery }: Pick<HashQuery, 'localHashes' | 'moeQuery'>,
): number {
  const { answer, trust, isComplete } = lookup.overlap(entry, localHashes, moeQuery)
  shards.lookAgain()
  const queryTokens = (localHashes.length / 2) * entry.blockSizeTokens
  metrics.queried(queryTokens, answer.frequencies.length * entry.blockSizeTokens, isComplete)
  return sendJson(exchange, 200, answer, { 'x-homing-trust': trust, 'x-homing-complete': String(isComplete) })
}

async function workers(
  { registry, shards, askMsMax }: RoutesOptions,
  exchange: HttpExchange,
  place: ViewPlace | undefined,
): Promise<number> {
  const query = new URLSearchParams(exchange.query)
  const model = query.get('model_name')
  const group = query.get('routing_group')
  const filter: Partial<Partition> = {
    ...(model === null ? {} : { model }),
    ...(group === null ? {} : { group }),
  }
  const ranks = [...registry.partitions].flatMap(partition => [...partition.ranks])
  const [views, status, inherited] = await Promise.all([
    viewRanks(ranks),
    shards.status(askMsMax),
    shards.inheritedBlocks(askMsMax),
  ])
  const blocksOf = (rank: Rank): number | null => {
    const shard = status[rank.shard]
    return shard === undefined ? null : (shard.blocksHeld[rank.workerSlot] ?? 0)
  }
  return sendJson(
    exchange,
    200,
    workersView(views, filter, blocksOf, rank => inherited[rank.shard]?.[rank.workerSlot] ?? 0),
    {},
    place,
  )
}
