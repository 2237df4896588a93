/**
 * Checks all given workers together: each is a usable URL, and no two are the same, have the same id or name
 * the same socket.
 */

import {
  InvalidWorkerError,
  openWorker,
  parseWorkerSpec,
  WorkerConflictError,
  WorkerRoll,
  type WorkerSpec,
} from '@homing/fleet'

/** Throws InvalidWorkerError for the first fault. */
export function parseWorkers(texts: readonly string[]): readonly WorkerSpec[] {
  const { specs, faults } = readWorkers(texts)
  if (faults[0] !== undefined) throw faults[0]
  return specs
}

/**
 * Every fault, a sentence each that begins with the worker. `texts`: undefined where a worker is faulty
 * already.
 */
export function faultsOfWorkers(texts: readonly (string | undefined)[]): readonly string[] {
  return readWorkers(texts).faults.map(faultText)
}

/** As `faultsOfWorkers`, but two workers may name the same: the doctor reports that itself. */
export function faultsOfUrls(texts: readonly (string | undefined)[]): readonly string[] {
  return texts
    .flatMap((text, position) => (text === undefined ? [] : readWorkers([text], position).faults))
    .map(faultText)
}

function faultText({ details }: InvalidWorkerError): string {
  return `${JSON.stringify(details['worker'])}: ${details['reason']}`
}

function readWorkers(
  texts: readonly (string | undefined)[],
  first = 0,
): {
  readonly specs: readonly WorkerSpec[]
  readonly faults: readonly InvalidWorkerError[]
} {
  const specs: WorkerSpec[] = []
  const faults: InvalidWorkerError[] = []
  const roll = new WorkerRoll()
  for (const [position, text] of texts.entries()) {
    if (text === undefined) continue
    try {
      const spec = parseWorkerSpec(text, first + position)
      roll.enter(openWorker(text), spec)
      specs.push(spec)
    } catch (thrown) {
      if (thrown instanceof InvalidWorkerError) faults.push(thrown)
      else if (thrown instanceof WorkerConflictError)
        faults.push(new InvalidWorkerError(openWorker(text), thrown.reason))
      else throw thrown
    }
  }
  return { specs, faults }
}
