/** All workers as given, together: each is a usable URL, and no two are the same or have the same id. */

import { InvalidWorkerError, parseWorkerSpec, type WorkerSpec } from '@homing/directory'

/** Throws InvalidWorkerError for the first fault. */
export function parseWorkers(texts: readonly string[]): readonly WorkerSpec[] {
  const { specs, faults } = readWorkers(texts)
  if (faults[0] !== undefined) throw faults[0]
  return specs
}

/** Every fault, a sentence each that begins with the worker. `texts`: undefined where a worker is faulty already. */
export function faultsOfWorkers(texts: readonly (string | undefined)[]): readonly string[] {
  return readWorkers(texts).faults.map(
    ({ details }) => `${JSON.stringify(details['worker'])}: ${details['reason']}`,
  )
}

function readWorkers(texts: readonly (string | undefined)[]): {
  readonly specs: readonly WorkerSpec[]
  readonly faults: readonly InvalidWorkerError[]
} {
  const specs: WorkerSpec[] = []
  const faults: InvalidWorkerError[] = []
  const firstOf = new Map<string | number, string>()
  for (const [position, text] of texts.entries()) {
    if (text === undefined) continue
    try {
      const spec = parseWorkerSpec(text, position)
      const twin = firstOf.get(spec.id)
      const namesake = firstOf.get(spec.instanceId)
      if (twin !== undefined) {
        throw new InvalidWorkerError(text, `it is the worker ${JSON.stringify(twin)} again: give it once`)
      }
      if (namesake !== undefined) {
        const whose = `its id ${spec.instanceId} is that of ${JSON.stringify(namesake)}`
        throw new InvalidWorkerError(
          text,
          `${whose}: give each another ?id= (one without has its position, from 0)`,
        )
      }
      firstOf.set(spec.id, text)
      firstOf.set(spec.instanceId, text)
      specs.push(spec)
    } catch (thrown) {
      if (!(thrown instanceof InvalidWorkerError)) throw thrown
      faults.push(thrown)
    }
  }
  return { specs, faults }
}
