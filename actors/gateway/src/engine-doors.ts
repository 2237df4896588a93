/**
 * Engine doors: with which keys, and which way, the HTTP client of this thread calls the origins of engines.
 *
 * Owns   the origins that have a key or a way of their own. Keys stand with the directory: this client reads
 *        them there.
 */

import type { WorkerDoor } from '@homing/actors/directory'
import { openDoor } from '@homing/fleet'
import type { HttpTransport } from '@homing/transport'

export class EngineDoors {
  readonly #http: HttpTransport
  #opened = new Set<string>()

  constructor(http: HttpTransport) {
    this.#http = http
  }

  /** From the directory: where the keys of origins stand, and which way requests go there. */
  take(doors: readonly WorkerDoor[], isAll: boolean): void {
    const gone = isAll ? this.#opened : new Set<string>()
    if (isAll) this.#opened = new Set()
    // That a key cannot be had, the directory has logged.
    for (const { origin, key, route } of doors) {
      openDoor(this.#http, origin, key)
      this.#http.setRoute(origin, route)
      gone.delete(origin)
      if (key === undefined && route === undefined) this.#opened.delete(origin)
      else this.#opened.add(origin)
    }
    for (const origin of gone) {
      openDoor(this.#http, origin, undefined)
      this.#http.setRoute(origin, undefined)
    }
  }
}
