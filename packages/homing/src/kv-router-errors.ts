import { CodedError, shownText } from '@homing/base'

/** A program gives a member that does not exist, or a value that cannot be. */
export class BadOptionError extends CodedError {
  readonly code = 'HOMING_LIBRARY_BAD_OPTION'

  /** `option`: as the program writes it. `why` says what would be right. */
  constructor(act: string, option: string, why: string) {
    const shown = shownText(option)
    super(`cannot ${act}: ${shown}: ${why}`, { option: shown })
  }
}

/** A request that `generate` sent was refused, or its answer broke off. */
export class GenerateFailedError extends CodedError {
  readonly code = 'HOMING_LIBRARY_GENERATE_FAILED'

  /**
   * `status`: as HTTP clients get it; 0: the answer had begun, or there was none. `reason`: the short code
   * that HTTP clients get, such as `model_not_found`; '' where the engine gives none.
   */
  constructor(why: string, status: number, reason: string) {
    super(`cannot generate: ${why}`, { status, reason })
  }
}

/** An engine answers with text alone. */
export class NoTokenIdsError extends CodedError {
  readonly code = 'HOMING_LIBRARY_NO_TOKEN_IDS'

  constructor(worker: string) {
    super(
      `cannot generate: worker ${worker} answers without token ids; its engine must know return_token_ids (vLLM from 0.10.2)`,
      { worker },
    )
  }
}

/** The router of the program was closed. */
export class KvRouterClosedError extends CodedError {
  readonly code = 'HOMING_LIBRARY_CLOSED'

  constructor(act: string) {
    super(`cannot ${act}: this router was closed`)
  }
}

/** The index has more blocks than one text can hold. */
export class DumpTooLargeError extends CodedError {
  readonly code = 'HOMING_LIBRARY_DUMP_TOO_LARGE'

  constructor(charactersMax: number) {
    super(
      `cannot dump the events as one text: they have more than ${charactersMax} characters; take them from dumpEventPieces()`,
      { charactersMax },
    )
  }
}
