/**
 * The errors of tokenization. Loading throws them; a single request never does, it gets an answer that says
 * why.
 */

import { CodedError } from '@homing/base'

/** The tokenizer directory is missing a file, or a file is not what Hugging Face writes. */
export class TokenizerLoadError extends CodedError {
  readonly code = 'HOMING_TOKENIZATION_LOAD'

  constructor(directory: string, why: string, cause?: unknown) {
    super(`cannot load the tokenizer in ${directory}: ${why}`, { directory, why }, { cause })
  }
}

/** A text could not be turned into token ids. */
export class EncodeError extends CodedError {
  readonly code = 'HOMING_TOKENIZATION_ENCODE'

  constructor(why: string, cause?: unknown) {
    super(`cannot encode the text: ${why}`, { why }, { cause })
  }
}

/**
 * A chat template, a request or a value that this package will not render, because the result might
 * differ from the engine's. Caught inside the package and answered as "delegate".
 */
export class RenderingRefusedError extends CodedError {
  readonly code = 'HOMING_TOKENIZATION_RENDERING_REFUSED'

  constructor(why: string) {
    super(`cannot render the chat exactly as the engine does: ${why}`, { why })
  }
}
