import { CodedError, shownText } from '@homing/base'

/** A worker as given (`--worker`, HOMING_WORKERS) is not a usable URL; the router does not start with it. */
export class InvalidWorkerError extends CodedError {
  readonly code = 'HOMING_DIRECTORY_INVALID_WORKER'

  constructor(text: string, reason: string) {
    super(`cannot use the worker ${JSON.stringify(text)}: ${reason}`, { worker: text, reason })
  }
}

/** The file of `--workers-file` cannot be used as it is; the workers that it named before stay. */
export class WorkersFileError extends CodedError {
  readonly code = 'HOMING_DIRECTORY_WORKERS_FILE'

  constructor(path: string, reason: string) {
    super(`cannot use the workers file ${path}: ${reason}`, { path, reason })
  }
}

/** A worker is here already, or has something that another one has. */
export class WorkerConflictError extends CodedError {
  readonly code = 'HOMING_DIRECTORY_WORKER_CONFLICT'
  readonly reason: string

  constructor(worker: string, reason: string) {
    const shown = shownText(worker)
    super(`cannot add the worker ${JSON.stringify(shown)}: ${reason}`, { worker: shown, reason })
    this.reason = reason
  }
}
