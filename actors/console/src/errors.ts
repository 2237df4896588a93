import { CodedError } from '@homing/errors'

/** As many requests of operators are being answered as may be, or as many bytes of their bodies held. */
export class ConsoleBusyError extends CodedError {
  readonly code = 'HOMING_CONSOLE_BUSY'

  constructor(what: string, max: number) {
    super(`cannot answer another operator request: ${max} ${what}`, { max })
  }
}
