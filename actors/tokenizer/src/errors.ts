import { CodedError } from '@homing/base'

/** The queue for a tokenizer thread is full. */
export class TokenizerOverloadedError extends CodedError {
  readonly code = 'HOMING_TOKENIZER_OVERLOADED'

  constructor(why: string) {
    super(`cannot read another request: ${why} (--tokenizer-threads)`, { why })
  }
}

/** Token ids of a model cannot be made text: its tokenizer is not known here, or has no decoder of ours. */
export class NoDecoderError extends CodedError {
  readonly code = 'HOMING_TOKENIZER_NO_DECODER'

  constructor(model: string, why: string) {
    super(`cannot make text of token ids of ${model}: ${why}`, { model, why })
  }
}

/**
 * The thread of a reader is gone, and none can be started in its place: files or memory of this machine are
 * used up.
 */
export class NoTokenizerThreadError extends CodedError {
  readonly code = 'HOMING_TOKENIZER_NO_THREAD'

  constructor(cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause)
    super(`cannot read the request: no tokenizer thread can be started: ${why}`, { why }, { cause })
  }
}
