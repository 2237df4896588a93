/** The routes of the service: what each takes, does and answers. */

import type { ActorContext, ActorRef } from '@homing/actor'
import { type FollowedPeers, peerHandlers } from '@homing/actors/replica-bridge'
import type { TrackerMessage } from '@homing/actors/tracker'
import {
  type AccessLog,
  type JsonHandler,
  type JsonRoute,
  jsonRouteTable,
  type RouteKind,
  type RouteTable,
  ServiceConflictError,
  ServiceFullError,
  ServiceNotFoundError,
  sendBooked,
  sendJson,
  serviceHandlers,
  type ViewPlace,
} from '@homing/http'
import { STEP_TOKENS_DEFAULT } from '@homing/load'
import type { HttpExchange } from '@homing/transport'
import { bookingId, type SlotCatalog, type SlotPartition, type SlotWorker } from './catalog.ts'
import type { SlotServiceMessage } from './messages.ts'
import {
  type Addition,
  readAddition,
  readPrompt,
  readRegistration,
  readRequestName,
  readUnregistration,
} from './requests.ts'
import type { SlotServiceArgs } from './service-args.ts'
import type { SlotMetrics } from './slot-metrics.ts'
import { SLOT_ROUTES, type SlotRouteName } from './slot-routes.ts'

export interface SlotRoutesOptions {
  readonly context: ActorContext<SlotServiceMessage>
  readonly args: SlotServiceArgs
  readonly catalog: SlotCatalog
  readonly tracker: ActorRef<TrackerMessage>
  readonly peers: FollowedPeers
  readonly metrics: SlotMetrics
  readonly accessLog: () => AccessLog | undefined
  readonly tellFleet: () => void
}

const OK = { status: 'ok' }
export const CHILD_ASK_MS_MAX = 5000
/** One life is enough: what callers add is freed by callers, or expires. */
const CALLERS = { name: 'callers', life: '1' }

export function routeTable(options: SlotRoutesOptions): RouteTable<JsonRoute> {
  return jsonRouteTable(SLOT_ROUTES, KINDS, handlersOf(options))
}

const KINDS: Readonly<Record<string, RouteKind>> = {
  '/health': 'watching',
  '/metrics': 'watching',
  '/add': 'query',
  '/prefill_complete': 'query',
  '/free': 'query',
  '/potential_loads': 'query',
}

function handlersOf(options: SlotRoutesOptions): Readonly<Record<SlotRouteName, JsonHandler>> {
  const { context, catalog, tracker, metrics, accessLog, peers } = options
  return {
    async 'POST /register'(exchange, body, note) {
      const registration = readRegistration(await body())
      note.model = registration.model
      catalog.register(registration, context.clock.wallMs())
      options.tellFleet()
      context.log.info(logged(registration), 'worker registered')
      return sendJson(exchange, 201, OK)
    },
    async 'POST /unregister'(exchange, body, note) {
      const name = readUnregistration(await body())
      note.model = name.model
      catalog.unregister(name)
      options.tellFleet()
      context.log.info(logged(name), 'worker unregistered')
      return sendJson(exchange, 200, OK)
    },
    'GET /workers': (exchange, _body, _note, place) => {
      const rows = workersOf(options, exchange).map(({ worker }) => workerView(worker))
      return sendJson(exchange, 200, rows, {}, place)
    },
    'GET /loads': (exchange, _body, _note, place) => loads(options, exchange, place),
    async 'POST /add'(exchange, body, note) {
      const addition = readAddition(await body())
      note.model = addition.model
      const decisionId = await add(options, addition)
      const undo = (): void => void tracker.tell({ type: 'free', decisionId, isOwn: true })
      return sendBooked(exchange, undo, () => sendJson(exchange, 201, OK))
    },
    async 'POST /prefill_complete'(exchange, body, note) {
      const action = 'complete the prefill'
      const name = readRequestName(action, await body())
      note.model = name.model
      const decisionId = bookingId(catalog.partition(action, name), name.requestId)
      if (!(await tracker.ask({ type: 'isBooked', decisionId }, { timeout: CHILD_ASK_MS_MAX })))
        throw new ServiceNotFoundError(
          action,
          `request ${JSON.stringify(name.requestId)} is not held; it may be free, or have expired`,
        )
      tellTracker(tracker, { type: 'prefillComplete', decisionId })
      return sendJson(exchange, 200, OK)
    },
    async 'POST /free'(exchange, body, note) {
      const action = 'free the request'
      const name = readRequestName(action, await body())
      note.model = name.model
      const decisionId = bookingId(catalog.partition(action, name), name.requestId)
      tellTracker(tracker, { type: 'free', decisionId })
      return sendJson(exchange, 200, OK)
    },
    async 'POST /potential_loads'(exchange, body, note) {
      const prompt = readPrompt(await body())
      note.model = prompt.model
      const partition = catalog.partition('tell potential loads', prompt)
      const ranks = ranksOf(partition)
      const { activeBlocks, newBlocks, activePrefillTokens, activeRequests } = await tracker.ask(
        {
          type: 'project',
          workerSlots: Int32Array.from(ranks, ({ workerSlot }) => workerSlot),
          sequenceHashes: prompt.sequenceHashes,
          wantsEngines: false,
        },
        { timeout: CHILD_ASK_MS_MAX },
      )
      const rows = ranks.map(({ workerId, dpRank }, i) => ({
        model_name: partition.model,
        routing_group: partition.group,
        worker_id: workerId,
        dp_rank: dpRank,
        potential_prefill_tokens: activePrefillTokens[i]! + prompt.newTokens,
        potential_decode_blocks: activeBlocks[i]! + newBlocks[i]!,
        active_requests: activeRequests[i]!,
      }))
      return sendJson(exchange, 200, rows)
    },
    ...peerHandlers(peers),
    ...serviceHandlers({ product: 'homing slots', routes: SLOT_ROUTES, metrics, accessLog }),
  }
}

/** Returns the id under which the tracker has it. */
async function add({ args, catalog, tracker }: SlotRoutesOptions, addition: Addition): Promise<string> {
  const { requestId, sequenceHashes, newTokens } = addition
  const action = `add request ${JSON.stringify(requestId)}`
  const { key, workerSlot, partition } = catalog.rank(action, addition, addition.dpRank)
  const blockTokens = (sequenceHashes.length / 2) * partition.blockSizeTokens
  const booking = {
    decisionId: bookingId(partition, requestId),
    gateway: CALLERS,
    worker: key,
    workerSlot,
    sequenceHashes,
    promptTokens: Math.max(blockTokens, newTokens),
    prefillTokens: newTokens,
    // Its caller tells the end of the prefill.
    isStream: true,
    stepTokens: STEP_TOKENS_DEFAULT,
  }
  const outcome = await tracker.ask({ type: 'book', booking }, { timeout: CHILD_ASK_MS_MAX })
  if (outcome === 'duplicate')
    throw new ServiceConflictError(action, 'this id is held already; free it first, or use another one')
  if (outcome === 'gone') throw new ServiceConflictError(action, 'its worker was unregistered meanwhile')
  if (outcome === 'full') {
    const { activeRequestsMax, activeBlocksMax } = args
    throw new ServiceFullError(
      action,
      `${activeRequestsMax} requests (--max-active-requests) or ${activeBlocksMax} blocks (--max-active-blocks) are held`,
    )
  }
  return booking.decisionId
}

/** Throws ServiceFullError where the mailbox has no room: what was said must not be lost. */
function tellTracker(tracker: ActorRef<TrackerMessage>, message: TrackerMessage): void {
  if (tracker.tell(message) !== 'ok')
    throw new ServiceFullError('take the request', 'the tracker has too much to do; say it again')
}

async function loads(
  options: SlotRoutesOptions,
  exchange: HttpExchange,
  place: ViewPlace | undefined,
): Promise<number> {
  const { rows } = await options.tracker.ask({ type: 'loads' }, { timeout: CHILD_ASK_MS_MAX })
  const bySlot = new Map(rows.map(row => [row.workerSlot, row]))
  const views = workersOf(options, exchange).flatMap(({ worker, partition }) =>
    worker.ranks.map(({ dpRank, workerSlot }) => ({
      model_name: partition.model,
      routing_group: partition.group,
      worker_id: worker.workerId,
      dp_rank: dpRank,
      active_prefill_tokens: bySlot.get(workerSlot)?.activePrefillTokens ?? 0,
      active_decode_blocks: bySlot.get(workerSlot)?.activeBlocks ?? 0,
      active_requests: bySlot.get(workerSlot)?.activeRequests ?? 0,
    })),
  )
  return sendJson(exchange, 200, views, {}, place)
}

interface NamedWorker {
  readonly worker: SlotWorker
  readonly partition: SlotPartition
}

/** Those that the query asks for; all without one. */
function workersOf({ catalog }: SlotRoutesOptions, { query: text }: HttpExchange): readonly NamedWorker[] {
  const query = new URLSearchParams(text)
  const model = query.get('model_name')
  const group = query.get('routing_group')
  return [...catalog.partitions]
    .filter(partition => (model ?? partition.model) === partition.model)
    .filter(partition => (group ?? partition.group) === partition.group)
    .flatMap(partition => [...partition.workers.values()].map(worker => ({ worker, partition })))
}

function ranksOf({ workers }: SlotPartition) {
  return [...workers.values()].flatMap(({ workerId, ranks }) => ranks.map(rank => ({ workerId, ...rank })))
}

function workerView({ workerId, model, group, blockSizeTokens, rankFirst, rankCount }: SlotWorker): object {
  return {
    worker_id: workerId,
    model_name: model,
    routing_group: group,
    block_size: blockSizeTokens,
    dp_start: rankFirst,
    dp_size: rankCount,
  }
}

function logged({ workerId, model, group }: { workerId: bigint; model: string; group: string }) {
  return { worker: String(workerId), model, group }
}
