import { RouterError } from '@homing/errors'

/** As many requests as allowed wait for a tokenizer thread. */
export class TokenizerOverloadedError extends RouterError {
  readonly code = 'HOMING_TOKENIZER_OVERLOADED'

  constructor(queueMax: number) {
    super(`cannot read another request: ${queueMax} wait for a tokenizer thread (--tokenizer-threads)`, {
      queueMax,
    })
  }
}
