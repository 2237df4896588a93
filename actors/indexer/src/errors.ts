import { CodedError } from '@homing/base'

/** A dump cannot go on: it was not asked for its next slice in time, or another one was begun. */
export class DumpEndedError extends CodedError {
  readonly code = 'HOMING_INDEXER_DUMP_ENDED'

  constructor(workerSlot: number) {
    super(
      'cannot go on with the dump: its next part was not asked for in time, another dump was begun, or the index was reset',
      { workerSlot },
    )
  }
}
