/** The routes of the service: what each takes, does and answers. */

import type { ActorContext, ActorRef } from '@homing/actor'
import { type Shards, sendDump } from '@homing/actors/index-service'
import { type FollowedPeers, peerHandlers } from '@homing/actors/replica-bridge'
import type { RouterMessage } from '@homing/actors/router'
import type { TrackerMessage } from '@homing/actors/tracker'
import { fromErrorRecord, openText, toErrorRecord } from '@homing/base'
import type { SelectSettings } from '@homing/config'
import {
  type AccessLog,
  type JsonHandler,
  type JsonRoute,
  jsonRouteTable,
  type RouteKind,
  type RouteTable,
  ServiceFullError,
  ServiceNotFoundError,
  sendBooked,
  sendJson,
  serviceHandlers,
  type Turns,
} from '@homing/http'
import { type Decision, type RoutingRequest, receiptView } from '@homing/placement'
import { type CatalogChange, fleetName, isSame, keyOf, partitionText, type SelectCatalog } from './catalog.ts'
import { HeldElsewhereError } from './errors.ts'
import type { SelectServiceMessage } from './messages.ts'
import type { PendingSelection, PendingSelections } from './pending-selections.ts'
import { readPrompt, readQuestion } from './questions.ts'
import {
  type ExplicitReservation,
  type Partition,
  readOutputBlock,
  readReservation,
  readWorker,
  type WorkerSpec,
} from './requests.ts'
import type { Reservations } from './reservations.ts'
import type { SelectMetrics } from './select-metrics.ts'
import { SELECT_ROUTES, type SelectRouteName } from './select-routes.ts'
import type { Asked, Selected, Selections } from './selections.ts'
import type { SelectServiceArgs } from './service-args.ts'
import { filteredBy, isReady, loadsView, workersView } from './views.ts'

export interface SelectRoutesOptions {
  readonly context: ActorContext<SelectServiceMessage>
  readonly args: SelectServiceArgs
  readonly catalog: SelectCatalog
  readonly shards: Shards
  readonly tracker: ActorRef<TrackerMessage>
  readonly router: ActorRef<RouterMessage>
  readonly selections: Selections
  readonly pending: PendingSelections
  readonly reservations: Reservations
  readonly peers: FollowedPeers
  readonly metrics: SelectMetrics
  readonly dumps: Turns
  readonly newId: () => string
  readonly accessLog: () => AccessLog | undefined
  /** Stops and starts what has changed, and tells tracker and router. */
  readonly changed: (change: CatalogChange) => void
}

type DecideMessage = Extract<RouterMessage, { readonly type: 'decide' }>

const OK = { status: 'ok' }
const NO_HASHES = new Int32Array(0)
export const SELECT_ASK_MS_MAX = 10_000
/** One life is enough: what callers reserve is freed by callers, or expires. */
const CALLERS = { name: 'callers', life: '1' }
const SELECT = 'select a worker'

export function routeTable(options: SelectRoutesOptions): RouteTable<JsonRoute> {
  return jsonRouteTable(SELECT_ROUTES, KINDS, handlersOf(options))
}

const KINDS: Readonly<Record<string, RouteKind>> = {
  '/health': 'watching',
  '/ready': 'watching',
  '/metrics': 'watching',
  '/select': 'query',
  '/select_and_reserve': 'query',
  '/reservations': 'query',
  '/reservations/*': 'query',
  '/reservations/*/prefill_complete': 'query',
  '/reservations/*/output_block': 'query',
  '/potential_loads': 'query',
  '/overlap_scores': 'query',
}

function handlersOf(options: SelectRoutesOptions): Readonly<Record<SelectRouteName, JsonHandler>> {
  const { context, catalog, shards, selections, reservations, router, metrics, accessLog, peers } = options
  return {
    async 'POST /workers'(exchange, body, note) {
      const spec = readWorker(await body())
      note.model = spec.model
      options.changed(catalog.put(spec, context.clock.wallMs()))
      context.log.info(logged(spec), 'worker added')
      return sendJson(exchange, 201, OK)
    },
    'GET /workers': async (exchange, _body, _note, place) => {
      const filter = filteredBy(exchange)
      return sendJson(exchange, 200, await workersView(options, filter), {}, place)
    },
    async 'PATCH /workers/*'(exchange, body, note, _place, parameter) {
      const bytes = await body()
      const before = catalog.worker('change the worker', workerIdOf('change the worker', parameter))
      const spec = readWorker(bytes, before)
      note.model = spec.model
      options.changed(catalog.put(spec, context.clock.wallMs()))
      context.log.info(logged(spec), 'worker changed')
      return sendJson(exchange, 200, OK)
    },
    'DELETE /workers/*'(exchange, _body, note, _place, parameter) {
      const change = catalog.remove('remove the worker', workerIdOf('remove the worker', parameter))
      note.model = change.worker.model
      options.changed(change)
      context.log.info(logged(change.worker), 'worker removed')
      return sendJson(exchange, 200, OK)
    },
    async 'POST /select'(exchange, body, note) {
      const asked = selections.ask(SELECT, readQuestion(SELECT, await body()))
      note.model = asked.question.model
      const selected = await selections.explain(asked)
      const { selectionId } = asked.question
      if (selectionId !== undefined) keep(options, selectionId, asked, selected)
      const view = { ...selections.view(asked, selectionId, selected), ...explained(asked, selected) }
      return sendJson(exchange, 200, view, headersOf(selected))
    },
    async 'POST /select_and_reserve'(exchange, body, note) {
      const asked = selections.ask(SELECT, readQuestion(SELECT, await body()))
      note.model = asked.question.model
      const id = asked.question.selectionId ?? options.newId()
      const { reserved: selected, undo } = await reserve(options, id, asked)
      const view = {
        ...selections.view(asked, id, selected),
        ...selections.reservedView(asked),
        ...explained(asked, selected),
      }
      const headers = { ...headersOf(selected), 'x-homing-decision': id }
      return sendBooked(exchange, undo, () => sendJson(exchange, 200, view, headers))
    },
    async 'POST /reservations'(exchange, body, note) {
      const { selectionId, explicit, ...partition } = readReservation(await body())
      note.model = partition.model
      const kept =
        explicit === undefined
          ? cached(options, selectionId, partition)
          : selectedElsewhere(options, selectionId, partition, explicit)
      const undo = await book(options, kept)
      const undoAndKeep = (): void => {
        undo()
        if (explicit === undefined && options.pending.find(selectionId) === undefined)
          options.pending.keep(kept)
      }
      return sendBooked(exchange, undoAndKeep, () => sendJson(exchange, 201, OK))
    },
    async 'POST /reservations/*/prefill_complete'(exchange, _body, _note, _place, id) {
      await reservations.prefillComplete('complete the prefill', id)
      return sendJson(exchange, 200, OK)
    },
    async 'POST /reservations/*/output_block'(exchange, body, _note, _place, id) {
      await reservations.outputBlock('count the block', id, readOutputBlock(await body()))
      return sendJson(exchange, 200, OK)
    },
    async 'DELETE /reservations/*'(exchange, _body, _note, _place, id) {
      await reservations.free('free the reservation', id)
      return sendJson(exchange, 200, OK)
    },
    'GET /loads': async (exchange, _body, _note, place) => {
      const report = await options.tracker.ask({ type: 'loads' }, { timeout: SELECT_ASK_MS_MAX })
      return sendJson(exchange, 200, loadsView(catalog, filteredBy(exchange), report), {}, place)
    },
    async 'POST /potential_loads'(exchange, body, note) {
      const action = 'tell potential loads'
      const { question, request } = selections.ask(action, readQuestion(action, await body()))
      note.model = question.model
      const rows = await router.ask({ type: 'potentialLoads', request }, { timeout: SELECT_ASK_MS_MAX })
      if ('code' in rows) throw fromErrorRecord(rows)
      const byKey = new Map(rows.map(row => [row.worker, row]))
      const views = [...catalog.workers].flatMap(({ ranks, workerId }) =>
        ranks.flatMap(rank => {
          const row = byKey.get(keyOf(rank))
          if (row === undefined) return []
          return {
            model_name: question.model,
            routing_group: question.group,
            worker_id: workerId,
            dp_rank: rank.dpRank,
            potential_prefill_tokens: row.potentialPrefillTokens,
            potential_decode_blocks: row.potentialDecodeBlocks,
            active_requests: row.activeRequests,
          }
        }),
      )
      return sendJson(exchange, 200, views)
    },
    async 'POST /overlap_scores'(exchange, body, note) {
      const action = 'look for overlaps'
      const { prompt, ...partition } = readPrompt(action, await body())
      note.model = partition.model
      const entry = selections.partition(action, partition)
      const { localHashes } = prompt(entry.blockSizeTokens)
      return sendJson(exchange, 200, selections.overlap(entry, localHashes))
    },
    'GET /dump': exchange =>
      sendDump(
        {
          clock: context.clock,
          registry: catalog.registry,
          shards,
          askMsMax: SELECT_ASK_MS_MAX,
          dumps: options.dumps,
        },
        exchange,
      ),
    ...peerHandlers(peers),
    'GET /ready': exchange =>
      isReady(catalog)
        ? sendJson(exchange, 200, { status: 'ready' })
        : sendJson(exchange, 503, { status: 'no worker is schedulable' }),
    ...serviceHandlers({ product: 'homing select', routes: SELECT_ROUTES, metrics, accessLog }),
  }
}

function reserve(options: SelectRoutesOptions, id: string, asked: Asked): Promise<Reserved<Selected>> {
  const { selections } = options
  return decide(options, SELECT, id, { request: asked.request }, decision =>
    selections.decided(asked, decision),
  )
}

function keep({ pending }: SelectRoutesOptions, id: string, asked: Asked, selected: Selected): void {
  const { model, group } = asked.question
  const { rank, prefillTokens } = selected
  const request = { ...asked.request, constraints: undefined }
  pending.keep({ selectionId: id, model, group, rank, request, prefillTokens })
}

/** What `/select` answered under this id. */
function cached(
  { pending, args }: SelectRoutesOptions,
  selectionId: string,
  partition: Partition,
): PendingSelection {
  const action = `reserve ${JSON.stringify(selectionId)}`
  const found = pending.find(selectionId)
  if (found === undefined || !isSame(found, partition)) {
    const { selectionTtlMs } = args.settings
    throw new ServiceNotFoundError(
      action,
      `nothing was selected under this id for ${partitionText(partition)} in the last ${selectionTtlMs / 1000} s (--selection-ttl), or it is reserved already, or newer selections took its place; select again, or name worker_id and the prompt`,
    )
  }
  if (found.rank.isGone) {
    pending.forget(selectionId)
    throw new ServiceNotFoundError(action, `worker ${keyOf(found.rank)} is gone; select again`)
  }
  return found
}

function rankOf(
  { catalog }: SelectRoutesOptions,
  selectionId: string,
  partition: Partition,
  { workerId, dpRank }: { readonly workerId: bigint; readonly dpRank: number },
) {
  const action = `reserve ${JSON.stringify(selectionId)}`
  const worker = catalog.worker(action, workerId)
  if (!isSame(worker, partition))
    throw new ServiceNotFoundError(action, `worker ${workerId} is not of ${partitionText(partition)}`)
  const rank = worker.ranks.find(each => each.dpRank === dpRank)
  if (rank !== undefined) return rank
  const last = worker.rankFirst + worker.rankCount - 1
  throw new ServiceNotFoundError(
    action,
    worker.ranks.length === 0
      ? `worker ${workerId} is incomplete: it has no block_size or no endpoint, or its ranks have not begun yet`
      : `worker ${workerId} has no rank ${dpRank}; it has ${worker.rankFirst} to ${last}`,
  )
}

/** It is to be sent to a rank that its caller has chosen by a rule of its own. */
function selectedElsewhere(
  options: SelectRoutesOptions,
  selectionId: string,
  partition: Partition,
  explicit: ExplicitReservation,
): PendingSelection {
  const rank = rankOf(options, selectionId, partition, explicit)
  const { sequenceHashes, promptTokens, prefillTokens, countsPrefill } = explicit
  const { blockSizeTokens } = rank
  const request: RoutingRequest = {
    requestId: selectionId,
    model: fleetName(partition),
    promptTokens: Math.max(promptTokens, (sequenceHashes.length / 2) * blockSizeTokens),
    blockSizeTokens,
    // Without local hashes and tokens nothing is guessed of what the rank holds then.
    localHashes: NO_HASHES,
    sequenceHashes,
    isStream: true,
    tracking: { prefillTokens: countsPrefill, assumesReuse: undefined },
    unknownPromptReason: undefined,
    textBlocksReason: undefined,
    override: {},
    pinnedInstanceId: undefined,
    pinnedRank: undefined,
    excludedWorkers: [],
  }
  return { ...partition, selectionId, rank, request, prefillTokens }
}

/** Returns what undoes it. */
async function book(options: SelectRoutesOptions, kept: PendingSelection): Promise<() => void> {
  const { selectionId: id, rank, request, prefillTokens } = kept
  const { workerSlot } = rank
  const chosen = { worker: keyOf(rank), workerSlot, prefillTokens }
  const { undo } = await decide(options, `reserve ${JSON.stringify(id)}`, id, { request, chosen }, () => ({
    rank,
  }))
  options.pending.forget(id)
  return undo
}

/** `undo`: ends the reservation, as its caller does not know of it. */
interface Reserved<T> {
  readonly reserved: T
  readonly undo: () => void
}

/** Books what the router decides under this id; `of`: what is reserved. */
async function decide<T extends Pick<Selected, 'rank'>>(
  { reservations, router, args }: SelectRoutesOptions,
  action: string,
  id: string,
  question: Pick<DecideMessage, 'request' | 'chosen'>,
  of: (decision: Decision) => Promise<T> | T,
): Promise<Reserved<T>> {
  await reservations.begin(action, id)
  let reserved: T
  try {
    const message = { type: 'decide', id, gateway: CALLERS, ...question } as const
    const result = await router.ask(message, { timeout: SELECT_ASK_MS_MAX })
    const outcome = result.kind === 'refused' ? result.error.details['outcome'] : undefined
    if (outcome === 'duplicate') throw new HeldElsewhereError(id)
    if (outcome === 'full') throw noRoom(action, args.settings)
    // Without rules for waiting the router never says that a request is to wait.
    if (result.kind !== 'decided')
      throw result.kind === 'refused' ? fromErrorRecord(result.error) : new Error('it is to wait')
    reserved = await of(result.decision)
  } catch (thrown) {
    if (thrown instanceof HeldElsewhereError) reservations.isElsewhere(id)
    else reservations.failed(id, toErrorRecord(thrown))
    throw thrown
  }
  return { reserved, undo: reservations.booked(action, id, reserved.rank) }
}

function noRoom(action: string, { activeRequestsMax, activeBlocksMax }: SelectSettings): ServiceFullError {
  return new ServiceFullError(
    action,
    `${activeRequestsMax} requests (--max-active-requests) or ${activeBlocksMax} blocks (--max-active-blocks) are held`,
  )
}

function headersOf({ rank, overlapBlocks, trust }: Selected): Record<string, string> {
  return {
    'x-homing-worker': keyOf(rank),
    'x-homing-overlap-blocks': String(overlapBlocks),
    'x-homing-trust': trust,
  }
}

function explained({ question }: Asked, { receipt }: Selected): object {
  return question.wantsReceipt && receipt !== undefined ? { receipt: receiptView(receipt) } : {}
}

function workerIdOf(action: string, text: string): bigint {
  const id = /^\d{1,20}$/.test(text) ? BigInt(text) : undefined
  if (id !== undefined && id < 1n << 64n) return id
  throw new ServiceNotFoundError(action, `${JSON.stringify(openText(text))} is no number of a worker`)
}

function logged({ workerId, model, group }: WorkerSpec) {
  return { worker: String(workerId), model, group }
}
