import { RouterError } from '@homing/errors'

/** No worker serves a model of this name. */
export class ModelNotFoundError extends RouterError {
  readonly code = 'HOMING_ROUTER_MODEL_NOT_FOUND'

  constructor(model: string, known: readonly string[]) {
    super(
      `cannot serve model ${JSON.stringify(model)}: no worker has it; known models: ${known.join(', ')}`,
      { model },
    )
  }
}

/** No worker can take the request now. */
export class NoWorkerError extends RouterError {
  readonly code = 'HOMING_ROUTER_NO_WORKER'

  constructor(model: string, excluded: readonly { readonly worker: string; readonly reason: string }[]) {
    const why = excluded.map(({ worker, reason }) => `${worker} (${reason})`).join(', ')
    super(
      `cannot place a request for model ${JSON.stringify(model)}: ${why === '' ? 'no worker has answered a probe yet' : why}`,
      { model },
    )
  }
}

/** The worker or rank that the request names does not exist, or does not serve its model. */
export class PinnedWorkerError extends RouterError {
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

/** The bounds of the slot manager are reached. */
export class TooManyRequestsError extends RouterError {
  readonly code = 'HOMING_ROUTER_TOO_MANY_REQUESTS'

  constructor(outcome: string) {
    super(
      `cannot book the request: ${outcome === 'full' ? 'too many requests or blocks are active' : 'its id is booked already'}`,
      { outcome },
    )
  }
}
