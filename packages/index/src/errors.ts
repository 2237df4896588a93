import { RouterError } from '@homing/errors'

/** `truncated`: it ends early. `version`: it is of another version, or no dump. `altered`: it contradicts itself. */
export type DumpFault = 'truncated' | 'version' | 'altered'

/** A dump of an index cannot be restored; the index is empty. */
export class IndexDumpError extends RouterError {
  readonly code = 'HOMING_INDEX_UNUSABLE_DUMP'
  readonly fault: DumpFault

  constructor(fault: DumpFault, why: string) {
    super(`cannot restore the dump of an index: ${why}`, { fault })
    this.fault = fault
  }
}
