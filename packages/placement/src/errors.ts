import { CodedError, shownText } from '@homing/base'

/** No worker serves a model of this name. */
export class ModelNotFoundError extends CodedError {
  readonly code = 'HOMING_ROUTER_MODEL_NOT_FOUND'

  constructor(model: string, known: readonly string[]) {
    super(
      `cannot serve model ${JSON.stringify(shownText(model))}: no worker has it; known models: ${known.join(', ')}`,
      { model: shownText(model) },
    )
  }
}

/** No worker lists a model of this name, but some that do not answer yet may bring it. */
export class ModelNotListedYetError extends CodedError {
  readonly code = 'HOMING_ROUTER_MODEL_NOT_LISTED_YET'

  constructor(model: string, loading: readonly { readonly id: string; readonly stateReason: string }[]) {
    const named = loading.slice(0, IDS_SHOWN).map(({ id, stateReason }) => `${id} (${stateReason})`)
    const more = loading.length > IDS_SHOWN ? `, … (${loading.length} in all)` : ''
    super(
      `cannot serve model ${JSON.stringify(shownText(model))} now: no worker that answers has it, and these do not answer yet: ${named.join(', ')}${more}; if the name is wrong, GET /v1/models lists those that are served`,
      { model: shownText(model), loading: loading.length, retryAfterSeconds: LOADING_RETRY_SECONDS },
    )
  }
}

/** No worker can take the request now. */
export class NoWorkerError extends CodedError {
  readonly code = 'HOMING_ROUTER_NO_WORKER'

  constructor(model: string, excluded: readonly { readonly worker: string; readonly reason: string }[]) {
    const why = excluded.map(({ worker, reason }) => `${worker} (${reason})`).join(', ')
    super(
      `cannot place a request for model ${JSON.stringify(shownText(model))}: ${why === '' ? 'no worker has answered a probe yet' : why}`,
      { model: shownText(model) },
    )
  }
}

/** The worker or rank that the request names does not exist or does not serve its model. */
export class PinnedWorkerError extends CodedError {
  readonly code = 'HOMING_ROUTER_PINNED_WORKER'

  constructor(instanceId: number | undefined, dpRank: number | undefined) {
    const named = [
      ...(instanceId === undefined ? [] : [`instance ${instanceId}`]),
      ...(dpRank === undefined ? [] : [`dp rank ${dpRank}`]),
    ].join(', ')
    super(`cannot place the request on ${named}: no such worker serves its model; GET /workers lists them`, {
      named,
    })
  }
}

/** The request names a worker that its own allow-list leaves out. */
export class PinNotAllowedError extends CodedError {
  readonly code = 'HOMING_ROUTER_PIN_NOT_ALLOWED'

  constructor(instanceId: number, allowed: readonly number[]) {
    super(
      `cannot place the request on instance ${instanceId}: it is not in its allowed_worker_ids ${excerptOf(allowed)}; add it there, or leave one of the two out`,
      { instanceId },
    )
  }
}

/** In mode direct the router does not choose, and the request names no worker. */
export class WorkerNotNamedError extends CodedError {
  readonly code = 'HOMING_ROUTER_WORKER_NOT_NAMED'

  constructor() {
    super(
      'cannot place the request: in mode direct it must name its worker, with nvext.backend_instance_id or the header x-dynamo-worker-instance-id; GET /workers lists them',
      {},
    )
  }
}

/** The filter of a custom selection left no worker for the request. */
export class AllFilteredError extends CodedError {
  readonly code = 'HOMING_ROUTER_ALL_FILTERED'

  constructor(selection: string, workers: readonly string[]) {
    super(
      `cannot place the request: the filter of the selection ${JSON.stringify(selection)} left out every worker that could take it: ${workers.join(', ')}`,
      { selection },
    )
  }
}

/** A second worker was to be asked for a stream, and each would have to hold up others for it. */
export class NoHedgeError extends CodedError {
  readonly code = 'HOMING_ROUTER_NO_HEDGE'

  constructor(busyTokensMax: number, workers: readonly string[]) {
    super(
      `cannot ask a second worker: each would compute more than ${busyTokensMax} tokens of the prompt beside other requests: ${workers.slice(0, IDS_SHOWN).join('; ')}`,
      { busyTokensMax },
    )
  }
}

/** Every eligible worker is past a busy threshold. */
export class AllBusyError extends CodedError {
  readonly code = 'HOMING_ROUTER_ALL_BUSY'

  constructor(busy: readonly string[], isPinned: boolean, status: number | undefined) {
    const who = isPinned ? 'the worker that it names is busy' : 'every worker that could take it is busy'
    const known = status === undefined ? {} : { overloadStatus: status }
    super(`cannot place the request: ${who}: ${busy.slice(0, IDS_SHOWN).join('; ')}`, {
      busy: busy.length,
      ...known,
    })
  }
}

/** The worker key that was chosen for the request has left since. */
export class WorkerGoneError extends CodedError {
  readonly code = 'HOMING_ROUTER_WORKER_GONE'

  constructor(worker: string) {
    super(`cannot place the request on ${worker}: it was removed since it was chosen; choose again`, {
      worker,
    })
  }
}

/** The slot manager (the tracker) has reached its bounds. */
export class TooManyRequestsError extends CodedError {
  readonly code = 'HOMING_ROUTER_TOO_MANY_REQUESTS'

  constructor(outcome: string) {
    super(
      `cannot book the request: ${outcome === 'full' ? 'too many requests or blocks are active' : 'its id is booked already'}`,
      { outcome },
    )
  }
}

const IDS_SHOWN = 8
/** An engine takes minutes to load its model. */
const LOADING_RETRY_SECONDS = 5

function excerptOf(ids: readonly number[]): string {
  const more = ids.length > IDS_SHOWN ? `, … (${ids.length} in all)` : ''
  return `[${ids.slice(0, IDS_SHOWN).join(', ')}${more}]`
}
