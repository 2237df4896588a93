/**
 * Worker roll: workers as given, of which no two are the same engine, have the same id or name the same
 * socket.
 *
 * Names of one host count as one if no name server is needed to see it: `localhost` is `127.0.0.1`. An engine
 * with two DNS names is two workers here; the probes then find that both name the same event socket.
 */

import { clashText, SocketClaims } from '@homing/transport'
import { WorkerConflictError } from './errors.ts'
import { givenSockets } from './named-sockets.ts'
import { placeOf } from './worker-place.ts'
import type { WorkerSpec } from './worker-spec.ts'

export class WorkerRoll {
  readonly #byPlace = new Map<string, string>()
  readonly #byInstanceId = new Map<number, string>()
  readonly #claims = new SocketClaims()

  /**
   * `label`: its name for people. Throws WorkerConflictError, without any change, if it conflicts with a
   * worker in the roll.
   */
  enter(label: string, spec: WorkerSpec): void {
    const place = placeOf(spec)
    const twin = this.#byPlace.get(place)
    if (twin !== undefined) {
      throw new WorkerConflictError(label, `it is the worker ${JSON.stringify(twin)} again: give it once`)
    }
    const namesake = this.#byInstanceId.get(spec.instanceId)
    if (namesake !== undefined) {
      throw new WorkerConflictError(
        label,
        `its id ${spec.instanceId} is also that of ${JSON.stringify(namesake)}: give each its own ?id=`,
      )
    }
    const owner = JSON.stringify(label)
    this.#claims.claim(owner, givenSockets(spec))
    const clash = this.#claims.clashOf(owner)
    if (clash !== undefined) {
      this.#claims.claim(owner, [])
      throw new WorkerConflictError(label, `it names ${clashText(clash)}: give each engine ports of its own`)
    }
    this.#byPlace.set(place, label)
    this.#byInstanceId.set(spec.instanceId, label)
  }

  /**
   * One that is here already, whatever it conflicts with: two that name one socket are both here, and
   * neither's events are followed.
   */
  note(label: string, spec: WorkerSpec): void {
    const place = placeOf(spec)
    if (this.#byPlace.has(place)) return
    this.#claims.claim(JSON.stringify(label), givenSockets(spec))
    this.#byPlace.set(place, label)
    this.#byInstanceId.set(spec.instanceId, label)
  }

  leave(spec: WorkerSpec): void {
    const place = placeOf(spec)
    const label = this.#byPlace.get(place)
    if (label === undefined) return
    this.#claims.claim(JSON.stringify(label), [])
    this.#byPlace.delete(place)
    this.#byInstanceId.delete(spec.instanceId)
  }
}
