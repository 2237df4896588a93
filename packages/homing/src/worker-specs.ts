/** Checks all given workers together: each is a usable URL, and no two are the same, have the same id or name the same socket. */

import { givenSockets, InvalidWorkerError, parseWorkerSpec, type WorkerSpec } from '@homing/directory'
import { clashText, hostName, SocketClaims } from '@homing/transport'

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
  const claims = new SocketClaims()
  for (const [position, text] of texts.entries()) {
    if (text === undefined) continue
    try {
      const spec = parseWorkerSpec(text, position)
      const url = new URL(spec.origin)
      // 'localhost' and '127.0.0.1' are one host, and with the same port one engine.
      const place = `${hostName(url.hostname)}:${url.port}`
      const twin = firstOf.get(place)
      const namesake = firstOf.get(spec.instanceId)
      if (twin !== undefined) {
        throw new InvalidWorkerError(text, `it is the worker ${JSON.stringify(twin)} again: give it once`)
      }
      if (namesake !== undefined) {
        const whose = `its id ${spec.instanceId} is also that of ${JSON.stringify(namesake)}`
        throw new InvalidWorkerError(
          text,
          `${whose}: give each its own ?id= (the default is its position, from 0)`,
        )
      }
      claims.claim(JSON.stringify(text), givenSockets(spec))
      const clash = claims.clashOf(JSON.stringify(text))
      if (clash !== undefined) {
        throw new InvalidWorkerError(text, `it names ${clashText(clash)}: give each engine ports of its own`)
      }
      firstOf.set(place, text)
      firstOf.set(spec.instanceId, text)
      specs.push(spec)
    } catch (thrown) {
      if (!(thrown instanceof InvalidWorkerError)) throw thrown
      faults.push(thrown)
    }
  }
  return { specs, faults }
}
