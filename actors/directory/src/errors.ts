import { CodedError } from '@homing/base'

/** There are more worker keys than worker slots; the keys without one get no requests. */
export class NoWorkerSlotError extends CodedError {
  readonly code = 'HOMING_DIRECTORY_NO_SLOT'

  constructor(key: string, workerSlotsMax: number) {
    super(
      `cannot use worker key ${key}: there are more worker keys than the ${workerSlotsMax} worker slots; raise --worker-slots-max`,
      {
        key,
        workerSlotsMax,
      },
    )
  }
}
